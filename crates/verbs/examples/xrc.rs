//! XRC: one connection between two processes, whose messages name the shared receive queue (SRQ) they are for. With n
//! workers on each side, one connection replaces n × n.

mod common;

use common::Outcome;
use ferroce::*;

const WORKERS: usize = 3;

fn main() -> Outcome<()> {
    let (device, index) = Device::with_address("127.0.0.1:0".parse()?)?;
    let context = Context::open(&device, &Options::from_env()?)?;
    let pd = context.protection_domain();
    let region = pd.allocate(4096, common::SHARED)?;

    // Each worker has its own SRQ and CQ.
    let xrc = context.xrc_domain();
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let completions = context.completion_queue(16, Some(&CompletionChannel::new()?))?;
            Ok((pd.xrc_receive_queue(16, &xrc, &completions)?, completions))
        })
        .collect::<Result<_, Error>>()?;

    // The two ends differ: the target has no queues.
    let completions = context.completion_queue(16, Some(&CompletionChannel::new()?))?;
    let target = xrc.target(&QueuePairOptions::new(ServiceType::XrcTarget, &completions))?;
    let options = QueuePairOptions::new(ServiceType::XrcInitiator, &completions);
    let initiator = pd.queue_pair(&options)?;
    let gid = device.gids()[usize::from(index)].gid;
    target.connect_to(index, gid, initiator.number())?;
    initiator.connect_to(index, gid, target.number())?;

    for (number, (queue, done)) in workers.iter().enumerate() {
        let offset = 1024 * number as u64;
        queue.post(ReceiveRequest { id: WorkId(7), sg_list: region.sge(offset, 1024).into() })?;
        let text = format!("for worker {number}");
        let data = Data::Inline(text.as_bytes().into());
        let send = SendRequest::new(WorkId(1), Operation::SEND, data);
        initiator.post_send(SendRequest { receive_queue: Some(queue.number()), ..send })?;
        let (sent, received) = (completions.wait()?, done.wait()?);
        let mut found = vec![0; received.length as usize];
        region.read(offset as usize, &mut found)?;
        if (sent.status, received.status) != (Status::Success, Status::Success)
            || found != text.as_bytes()
        {
            return Err(format!("differs from what was sent: {sent:?} {received:?}").into());
        }
        println!("queue {:#08x} got '{text}'", queue.number().0);
    }
    println!("{WORKERS} queues reached over one connection");
    Ok(())
}
