//! Completions as futures: two tasks of a tokio runtime send a counter back and forth. No thread blocks.
//!
//!     cargo run --example awaiting --features tokio

mod common;

#[cfg(not(feature = "tokio"))]
fn main() {
    println!("built without the feature tokio");
}

#[cfg(feature = "tokio")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> common::Outcome<()> {
    tokio_only::run().await
}

#[cfg(feature = "tokio")]
mod tokio_only {
    use ferroce::*;

    use crate::common::{self, Outcome};

    const ROUNDS: u64 = 100;

    struct Side {
        completions: AsyncCompletionQueue,
        queue_pair: QueuePair,
        region: MemoryRegion,
    }

    impl Side {
        fn new(context: &Context) -> Result<Self, Error> {
            let pd = context.protection_domain();
            let completions = context.async_completion_queue(16)?;
            let service = ServiceType::ReliableConnection;
            let options = QueuePairOptions::new(service, completions.queue());
            let queue_pair = pd.queue_pair(&options)?;
            Ok(Self { completions, queue_pair, region: pd.allocate(8, common::SHARED)? })
        }

        fn post_receive(&self) -> Result<(), PostError> {
            let sg_list = self.region.sge(0, 8).into();
            self.queue_pair.post_receive(ReceiveRequest { id: WorkId(1), sg_list })
        }

        fn send(&self, number: u64) -> Result<(), PostError> {
            let data = Data::Inline(number.to_be_bytes().into());
            let mut request = SendRequest::new(WorkId(2), Operation::SEND, data);
            request.signaled = false; // Only a failure generates a completion.
            self.queue_pair.post_send(request)
        }

        /// Waits for the peer's number and sends the next one back, until the last has arrived.
        async fn count(&self) -> Outcome<u64> {
            loop {
                let done = self.completions.next().await?;
                if done.status != Status::Success {
                    return Err(format!("{:?}", done.status).into());
                }
                let mut number = [0; 8];
                self.region.read(0, &mut number)?;
                let number = u64::from_be_bytes(number);
                self.post_receive()?;
                if number < ROUNDS {
                    self.send(number + 1)?;
                }
                if number + 1 >= ROUNDS {
                    return Ok(number);
                }
            }
        }
    }

    pub(crate) async fn run() -> Outcome<()> {
        let (device, index) = Device::with_address("127.0.0.1:0".parse()?)?;
        let context = Context::open(&device, &Options::from_env()?)?;
        let (one, other) = (Side::new(&context)?, Side::new(&context)?);
        let gid = device.gids()[usize::from(index)].gid;
        one.queue_pair.connect_to(index, gid, other.queue_pair.number())?;
        other.queue_pair.connect_to(index, gid, one.queue_pair.number())?;
        one.post_receive()?;
        other.post_receive()?;
        one.send(1)?;
        let (one, other) = tokio::try_join!(one.count(), other.count())?;
        println!("counted to {} and {}", one, other);
        Ok(())
    }
}
