//! Awaited completions in a single-threaded runtime: the device thread must deliver them.

use crate::support::{ACCESS, attributes, bring_up, open, options, pattern};
use ferroce::*;

#[tokio::test(flavor = "current_thread")]
async fn completions_can_be_awaited() {
    let context = open(&options());
    let pd = context.protection_domain();
    let region = pd.allocate(1 << 20, ACCESS).unwrap();
    let [one, other] = [(); 2].map(|()| context.async_completion_queue(64).unwrap());
    let [ours, theirs] = [&one, &other].map(|completions| {
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, completions.queue());
        pd.queue_pair(&options).unwrap()
    });
    bring_up(&ours, &attributes(&context, 0, theirs.number(), 1024));
    bring_up(&theirs, &attributes(&context, 0, ours.number(), 1024));
    let bytes = pattern(1, 5000);
    region.write(0, &bytes).unwrap();
    for id in 0..20 {
        let sg_list = region.sge(100_000, 5000).into();
        theirs.post_receive(ReceiveRequest { id: WorkId(id), sg_list }).unwrap();
        let data = Data::SgList(region.sge(0, 5000).into());
        ours.post_send(SendRequest::new(WorkId(id), Operation::SEND, data)).unwrap();
        let (sent, received) = tokio::join!(one.next(), other.next());
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!((sent.id, sent.status), (WorkId(id), Status::Success));
        assert_eq!((received.id, received.length), (WorkId(id), 5000));
        let mut found = vec![0; 5000];
        region.read(100_000, &mut found).unwrap();
        assert_eq!(found, bytes);
    }
}

#[test]
fn a_queue_cannot_be_awaited_outside_of_a_runtime() {
    let context = open(&options());
    let error = context.async_completion_queue(16).unwrap_err();
    assert!(matches!(error, CreateError::NoIoDriver), "{error:?}");
}
