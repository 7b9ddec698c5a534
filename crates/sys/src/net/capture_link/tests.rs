use super::*;

const PARAMETERS: Parameters = Parameters { block: true, snap_len: 65_535, ring: 1 << 16 };

#[test]
fn names_hold_the_parameters() {
    let name = PARAMETERS.name();
    assert_eq!(Parameters::parse(&name), Some(PARAMETERS));
    for name in ["", "ferroce/capture/", "ferroce/capture/block/1/2", "ferroce/capture/x/1/2/3"] {
        assert_eq!(Parameters::parse(name), None, "{name}");
    }
}

#[test]
fn a_process_finds_the_collector_and_passes_a_ring() {
    // Tests run at the same time in one network namespace: this one finds its own by the snap length.
    let parameters = Parameters { snap_len: 1000 + std::process::id(), ..PARAMETERS };
    let listener = CaptureListener::bind(parameters).unwrap();
    let found = collectors().unwrap();
    let found: Vec<_> = found.iter().filter(|found| found.parameters == parameters).collect();
    assert_eq!(found.len(), 1);
    let (process, mut producer) = Connection::open(found[0]).unwrap();
    let accepted = listener.accept();
    let [collector] = accepted.as_slice() else { panic!("{accepted:?}") };
    assert_eq!(collector.process(), std::process::id());
    let ring = collector.take_ring().unwrap();
    producer.room(3).unwrap().unwrap().copy_from_slice(b"abc");
    producer.commit(3);
    let _ = producer.publish();
    let mut record = [0; 8];
    assert_eq!(ring.take(&mut record), Ok(Some(3)));
    assert!(process.send(b"hello").unwrap());
    let mut message = [0; MAX_MESSAGE];
    assert_eq!(collector.receive(&mut message).unwrap(), Some(5));
    assert_eq!(collector.receive(&mut message).unwrap(), None);
    assert!(!process.wait_for_end(Duration::ZERO));
    // The accepted connection has the name of the listener; it is not a second collector.
    drop(listener);
    assert!(!process.wait_for_end(Duration::ZERO));
    drop(accepted);
    assert!(process.wait_for_end(Duration::from_secs(60)));
    assert!(process.receive(&mut message).is_err() && process.send(b"x").is_err());
    assert!(!collectors().unwrap().iter().any(|found| found.parameters == parameters));
}

/// A busy collector tells a process to begin, and next looks at it when it has ended without reading that.
#[test]
fn what_a_process_said_before_it_ended_is_heard() {
    let parameters = Parameters { snap_len: 2000 + std::process::id(), ..PARAMETERS };
    let listener = CaptureListener::bind(parameters).unwrap();
    let name = collectors().unwrap().into_iter().find(|one| one.parameters == parameters);
    for reads_the_ring_first in [true, false] {
        let (process, mut producer) = Connection::open(name.as_ref().unwrap()).unwrap();
        let collector = listener.accept().pop().unwrap();
        let before = reads_the_ring_first.then(|| collector.take_ring().unwrap());
        assert!(collector.send(b"begin").unwrap());
        assert!(process.send(b"interface").unwrap() && process.send(b"source").unwrap());
        producer.room(3).unwrap().unwrap().copy_from_slice(b"abc");
        producer.commit(3);
        let _ = producer.publish();
        process.close();
        drop((process, producer));
        let ring = before.unwrap_or_else(|| collector.take_ring().unwrap());
        let mut message = [0; MAX_MESSAGE];
        assert_eq!(collector.receive(&mut message).unwrap(), Some(9));
        assert_eq!(collector.receive(&mut message).unwrap(), Some(6));
        let end = collector.receive(&mut message).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(ring.take(&mut message), Ok(Some(3)));
    }
}
