//! Which devices a program shall see.

use ferroce::{Device, devices};

/// The devices of these names, in the order in which all are listed. Without names, those of the environment that we
/// run in; without these, all.
pub(super) fn chosen(names: &[String]) -> Result<Vec<Device>, String> {
    let inherited = std::env::var("FERROCE_DEVICES").unwrap_or_default();
    let mut wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        wanted = inherited.split(',').collect();
    }
    wanted.retain(|name| !name.is_empty());
    if wanted.is_empty() {
        return devices().map_err(|error| error.to_string());
    }
    let mut chosen = Vec::new();
    for name in wanted {
        let device = Device::named(name).map_err(|error| error.to_string())?;
        if !device.interface().up {
            return Err(format!(
                "{}: its interface is down; `ip link set {} up` changes that",
                device.name(),
                device.interface().name
            ));
        }
        if !chosen.contains(&device) {
            chosen.push(device);
        }
    }
    chosen.sort_by_key(|device| (!device.interface().loopback, device.interface().index));
    Ok(chosen)
}
