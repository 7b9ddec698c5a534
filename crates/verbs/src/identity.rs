//! What a device says of itself in `ibv_device_attr`: the same in the library, the command and the files under
//! `/sys/class/infiniband`.

/// Locally administered, so no vendor's: programs that know vendors' devices find an unknown one.
pub const VENDOR_ID: u32 = 0x02_f0ce;

/// The model: the UDP port of RoCEv2.
pub const VENDOR_PART_ID: u32 = 4791;

/// Hardware version.
pub const HARDWARE_VERSION: u32 = 1;

/// Firmware version: that of the library.
pub const FIRMWARE_VERSION: &str = env!("CARGO_PKG_VERSION");
