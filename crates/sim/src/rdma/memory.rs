//! Registered memory of a simulated host: one region for each connection, under a key of its own.

use ferroce_proto::memory::{AccessFlags, Atomic, Denied, Domain, LocalSpan, Memory, RemoteSpan};
use ferroce_wire::number::RKey;

/// The protection domain of everything on a simulated host.
pub(super) const DOMAIN: Domain = Domain(1);

/// Where every region starts, as programs count.
pub(super) const BASE: u64 = 0x7f00_0000_0000;

/// The key of a region: its index, with something that an uninitialised key would not have.
pub(super) const fn key(region: usize) -> u32 {
    0x4b00_0000 | region as u32
}

#[derive(Debug, Default)]
pub(super) struct Regions {
    pub(super) regions: Vec<Vec<u8>>,
}

impl Regions {
    fn place(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        length: usize,
    ) -> Result<Place, Denied> {
        if domain != DOMAIN {
            return Err(Denied::Domain);
        }
        let region = (key ^ 0x4b00_0000) as usize;
        let bytes = self.regions.get(region).ok_or(Denied::Key)?;
        let start = address.checked_sub(BASE).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length as u64).ok_or(Denied::Bounds)?;
        if end > bytes.len() as u64 {
            return Err(Denied::Bounds);
        }
        Ok(Place { region, range: start as usize..end as usize })
    }

    fn read(&self, place: Place, out: &mut [u8]) {
        out.copy_from_slice(&self.regions[place.region][place.range]);
    }

    fn write(&mut self, place: Place, data: &[u8]) {
        self.regions[place.region][place.range].copy_from_slice(data);
    }
}

struct Place {
    region: usize,
    range: std::ops::Range<usize>,
}

impl Memory for Regions {
    fn check_local(&self, domain: Domain, span: LocalSpan, _write: bool) -> Result<(), Denied> {
        self.place(domain, span.key.0, span.address.0, span.length as usize).map(drop)
    }

    fn read_local(&self, domain: Domain, span: LocalSpan, out: &mut [u8]) -> Result<(), Denied> {
        let place = self.place(domain, span.key.0, span.address.0, out.len())?;
        self.read(place, out);
        Ok(())
    }

    fn write_local(&mut self, domain: Domain, span: LocalSpan, data: &[u8]) -> Result<(), Denied> {
        if data.len() > span.length as usize {
            return Err(Denied::Bounds);
        }
        let place = self.place(domain, span.key.0, span.address.0, data.len())?;
        self.write(place, data);
        Ok(())
    }

    fn check_remote(
        &self,
        domain: Domain,
        span: RemoteSpan,
        _access: AccessFlags,
    ) -> Result<(), Denied> {
        self.place(domain, span.key.0, span.address.0, span.length as usize).map(drop)
    }

    fn read_remote(&self, domain: Domain, span: RemoteSpan, out: &mut [u8]) -> Result<(), Denied> {
        let place = self.place(domain, span.key.0, span.address.0, out.len())?;
        self.read(place, out);
        Ok(())
    }

    fn write_remote(
        &mut self,
        domain: Domain,
        span: RemoteSpan,
        data: &[u8],
    ) -> Result<(), Denied> {
        let place = self.place(domain, span.key.0, span.address.0, data.len())?;
        self.write(place, data);
        Ok(())
    }

    fn atomic(&mut self, domain: Domain, span: RemoteSpan, what: Atomic) -> Result<u64, Denied> {
        if span.address.0 % 8 != 0 {
            return Err(Denied::Alignment);
        }
        let place = self.place(domain, span.key.0, span.address.0, 8)?;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.regions[place.region][place.range.clone()]);
        let original = u64::from_ne_bytes(bytes);
        self.write(place, &what.apply(original).to_ne_bytes());
        Ok(original)
    }

    fn invalidate(&mut self, _domain: Domain, _key: RKey) -> Result<(), Denied> {
        // Regions of simulated hosts last as long as the hosts: only windows can be made invalid (IBA 10.6.5).
        Err(Denied::Access)
    }
}
