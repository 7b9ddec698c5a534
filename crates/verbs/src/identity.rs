//! Vendor and version numbers of `ibv_device_attr`, for the library, the command and the files under
//! `/sys/class/infiniband`.

/// Vendor ID: a locally administered OUI, which no vendor has.
pub const VENDOR_ID: u32 = 0x02_f0ce;

/// Vendor part ID: the UDP port of RoCEv2.
pub const VENDOR_PART_ID: u32 = 4791;

/// Hardware version.
pub const HARDWARE_VERSION: u32 = 1;

/// Firmware version: that of the library.
pub const FIRMWARE_VERSION: &str = env!("CARGO_PKG_VERSION");
