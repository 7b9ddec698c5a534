//! Frames on their way, in slots that keep their buffers: a frame costs no allocation once the run is warm.

use crate::host::{Destination, HostId};
use crate::trace::Faults;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId(u32);

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: HostId,
    pub(crate) destination: Destination,
    /// What it has met so far.
    pub(crate) faults: Faults,
}

/// All frames on their way.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    slots: Vec<Flight>,
    free: Vec<FlightId>,
}

impl Flights {
    /// An empty frame of `source`.
    pub(crate) fn begin(&mut self, source: HostId) -> FlightId {
        if let Some(id) = self.free.pop() {
            let flight = self.get_mut(id);
            flight.bytes.clear();
            flight.faults.clear();
            flight.source = source;
            return id;
        }
        let id = FlightId(self.slots.len() as u32);
        let (destination, faults) = (Destination::Header, Faults::default());
        self.slots.push(Flight { bytes: Vec::new(), source, destination, faults });
        id
    }

    /// A copy of a frame, in a slot of its own.
    pub(crate) fn copy(&mut self, id: FlightId) -> FlightId {
        let copy = self.begin(self.get(id).source);
        // Taken out for the time of copying: both slots are in one vector.
        let mut bytes = std::mem::take(&mut self.get_mut(copy).bytes);
        let original = self.get(id);
        bytes.extend_from_slice(&original.bytes);
        let (destination, faults) = (original.destination, original.faults.clone());
        let slot = self.get_mut(copy);
        (slot.bytes, slot.destination, slot.faults) = (bytes, destination, faults);
        copy
    }

    pub(crate) fn end(&mut self, id: FlightId) {
        self.free.push(id);
    }

    pub(crate) fn get(&self, id: FlightId) -> &Flight {
        &self.slots[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: FlightId) -> &mut Flight {
        &mut self.slots[id.0 as usize]
    }
}
