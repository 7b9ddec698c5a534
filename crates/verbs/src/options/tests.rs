use super::*;

fn from(variables: &[(&str, &str)]) -> Result<Options, EnvironmentError> {
    let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
    Options::from_variables(|name| find(name).map(|(_, value)| value.into()))
}

#[test]
fn reads_the_environment() {
    assert_eq!(from(&[]), Ok(Options::default()));
    let options = from(&[("FERROCE_CAPTURE", "a.pcapng"), ("FERROCE_FAULTS", "loss=1%")]).unwrap();
    assert_eq!(options.capture, Some("a.pcapng".into()));
    assert_eq!(options.capture_policy, CapturePolicy::Block);
    let options = from(&[("FERROCE_CAPTURE_POLICY", "drop")]).unwrap();
    assert_eq!(options.capture_policy, CapturePolicy::Drop);
    assert!(from(&[("FERROCE_CAPTURE_POLICY", "wait")]).is_err());
    let options = from(&[("FERROCE_CAPTURE", "a.pcapng"), ("FERROCE_FAULTS", "loss=1%")]).unwrap();
    assert_eq!(options.faults.map(|faults| faults.loss), Some(10_000));
    let options = from(&[("FERROCE_KEEPALIVE", "30")]).unwrap();
    assert_eq!(options.keepalive, Some(Duration::from_secs(30)));
    for invalid in ["0", "30s", "86401", "-1"] {
        assert!(from(&[("FERROCE_KEEPALIVE", invalid)]).is_err(), "{invalid}");
    }
}

#[test]
fn an_invalid_value_is_named_with_what_is_allowed() {
    let error = from(&[("FERROCE_FAULTS", "weather=1%")]).unwrap_err();
    assert_eq!((error.variable, error.value.to_str()), ("FERROCE_FAULTS", Some("weather=1%")));
    let text = error.to_string();
    assert!(text.starts_with("FERROCE_FAULTS=\"weather=1%\" is invalid: "), "{text}");
    assert!(text.contains("loss=1%,duplication=0.5%"), "{text}");
}

#[test]
fn the_number_of_shards_is_bounded() {
    let with = |shards| Options { shards, ..Options::default() }.shard_count();
    assert_eq!((with(None), with(Some(0)), with(Some(3))), (1, 1, 3));
    assert_eq!(with(Some(200)), usize::from(MAX_SHARDS));
}
