//! What a stranger copies or installs to use Ferroce: the figures of `docs/porting.md` are those of a device.

mod porting;
