//! Frames in flight, in slots that keep their buffers: after warm-up a frame costs no allocation.

use crate::event_log::Faults;
use crate::host::{Destination, HostId};

/// The index of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId(u32);

/// A frame in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: HostId,
    pub(crate) destination: Destination,
    /// The faults so far.
    pub(crate) faults: Faults,
}

/// All frames in flight.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    slots: Vec<Flight>,
    free: Vec<FlightId>,
}

impl Flights {
    /// Allocates an empty frame of `source`.
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

    /// Copies a frame into another slot.
    pub(crate) fn copy(&mut self, id: FlightId) -> FlightId {
        let copy = self.begin(self.get(id).source);
        // Taken out while copying, because both slots are in one vector.
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
