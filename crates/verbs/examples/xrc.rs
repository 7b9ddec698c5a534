//! XRC: one connection between two processes, and every message names the shared receive queue it is for. With n workers
//! on each side, n × n connections become one.

mod common;

use common::Outcome;
use ferroce::*;

const WORKERS: usize = 3;

fn main() -> Outcome<()> {
    let (device, index) = Device::with_address("127.0.0.1:0".parse()?)?;
    let context = Context::open(&device, &Options::from_env()?)?;
    let domain = context.protection_domain();
    let region = domain.allocate(4096, common::SHARED)?;
    let events = CompletionChannel::new()?;

    // Each worker has its own queue, with its own completions.
    let xrc = context.xrc_domain();
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let completions = context.completion_queue(16, Some(&CompletionChannel::new()?))?;
            Ok((domain.xrc_receive_queue(16, &xrc, &completions)?, completions))
        })
        .collect::<Result<_, Error>>()?;

    // The two ends are different things: the target has no queues of its own.
    let completions = context.completion_queue(16, Some(&events))?;
    let target = xrc.target(&QueuePairOptions::new(ServiceType::XrcTarget, &completions))?;
    let options = QueuePairOptions::new(ServiceType::XrcInitiator, &completions);
    let initiator = domain.queue_pair(&options)?;
    common::bring_up(&target, index, initiator.number())?;
    common::bring_up(&initiator, index, target.number())?;

    for (number, (queue, done)) in workers.iter().enumerate() {
        let place = 1024 * number as u64;
        queue.post(ReceiveRequest { id: WorkId(7), sg_list: region.sge(place, 1024).into() })?;
        let text = format!("for worker {number}");
        let data = Data::Inline(text.as_bytes().into());
        let send = SendRequest::new(WorkId(1), Operation::SEND, data);
        initiator.post_send(SendRequest { receive_queue: Some(queue.number()), ..send })?;
        let (sent, received) = (completions.wait()?, done.wait()?);
        let mut found = vec![0; received.length as usize];
        region.read(place as usize, &mut found)?;
        if (sent.status, received.status) != (Status::Success, Status::Success)
            || found != text.as_bytes()
        {
            return Err(format!("not as it was sent: {sent:?} {received:?}").into());
        }
        println!("queue {:#08x} got '{text}'", queue.number().0);
    }
    println!("{WORKERS} queues reached over one connection");
    Ok(())
}
