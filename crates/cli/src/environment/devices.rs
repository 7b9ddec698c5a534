//! Selecting and naming the devices that a program sees.

use ferroce::{Device, Names, devices};

/// The devices of these names, in this order; without names, those of the environment; without these, all. They are
/// named by the pattern given, or by that of the environment.
pub(super) fn chosen(names: &[String], pattern: Option<&Names>) -> Result<Vec<Device>, String> {
    let inherited = std::env::var("FERROCE_DEVICES").unwrap_or_default();
    let mut wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        wanted = inherited.split(',').collect();
    }
    wanted.retain(|name| !name.is_empty());
    let mut chosen = Vec::new();
    if wanted.is_empty() {
        chosen = devices().map_err(|error| error.to_string())?;
    }
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
    let pattern = match pattern {
        Some(pattern) => pattern.clone(),
        None => Names::from_env().map_err(|error| error.to_string())?,
    };
    pattern.apply(&mut chosen);
    Ok(chosen)
}
