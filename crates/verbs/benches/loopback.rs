//! Two processes on the loopback, compared with TCP at the same sizes in the same run: only the ratios are comparable between
//! hosts.
//!
//! `cargo bench -p ferroce --bench loopback`

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ferroce::*;

mod pair;

use pair::{End, connect, introduce, write};

const CHUNK: usize = 4 << 20;
const TOTAL: usize = 1 << 30;
const ROUNDS: usize = 20_000;
const SMALL: usize = 64;

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    match std::env::var("FERROCE_BENCH_ROLE").as_deref() {
        Ok("server") => server(),
        _ if wanted.is_some_and(|name| !"loopback".contains(&name)) => {}
        _ => client(),
    }
}

/// Waits for the last byte of a message, and drives the device meanwhile.
fn await_byte(end: &End, at: usize, value: u8) {
    let bytes = end.region.buffer().unwrap().bytes();
    while bytes[at].load(Ordering::Acquire) != value {
        end.completions.poll_one();
    }
}

/// A ping-pong by WRITE, in which both ends poll memory, as in ib_write_lat.
fn ping_pong(end: &End, remote: RemoteAddress, first: bool) -> Duration {
    let start = Instant::now();
    let bytes = end.region.buffer().unwrap().bytes();
    let last = SMALL - 1;
    for round in 0..ROUNDS {
        let value = (round % 250) as u8 + 1;
        // Received and sent messages are at different offsets.
        let (here, there) = if first { (CHUNK, 0) } else { (0, CHUNK) };
        if !first {
            await_byte(end, here + last, value);
        }
        bytes[there + last].store(value, Ordering::Release);
        let signaled = round % 64 == 63;
        write(end, remote, there as u64, SMALL, signaled);
        if signaled {
            while end.completions.poll_one().is_none() {}
        }
        if first {
            await_byte(end, here + last, value);
        }
    }
    start.elapsed()
}

fn server() {
    let end = pair::end(16 * CHUNK);
    println!("{}", introduce(&end));
    let mut lines = BufReader::new(std::io::stdin()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let remote = connect(&end, &line());
    println!("ready");
    assert_eq!(line(), "latency");
    ping_pong(&end, remote, false);
    println!("done");
    // The rest is one-sided: the device thread handles it.
    assert_eq!(line(), "tcp");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    // As much memory as the peer's region, so that both caches are equally cold.
    let mut buffer = vec![0; 16 * CHUNK];
    let mut got = 0;
    while got < TOTAL {
        let at = got % buffer.len();
        got += stream.read(&mut buffer[at..]).unwrap();
    }
    stream.write_all(&[1]).unwrap();
    let mut small = [0; SMALL];
    for _ in 0..ROUNDS {
        stream.read_exact(&mut small).unwrap();
        stream.write_all(&small).unwrap();
    }
    let _ = line();
}

fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn client() {
    let (mut child, mut input, mut lines) = pair::server();
    let mut line = || lines.next().unwrap().unwrap();
    let end = pair::end(16 * CHUNK);
    let remote = connect(&end, &line());
    writeln!(input, "{}", introduce(&end)).unwrap();
    assert_eq!(line(), "ready");

    writeln!(input, "latency").unwrap();
    let latency = ping_pong(&end, remote, true) / (2 * ROUNDS as u32);
    assert_eq!(line(), "done");

    let bulk = |read: bool| {
        let start = Instant::now();
        let chunks = TOTAL / CHUNK;
        let (mut posted, mut done) = (0, 0);
        while done < chunks {
            while posted < chunks && posted - done < 8 {
                let offset = ((posted % 16) * CHUNK) as u64;
                if read {
                    let remote = RemoteAddress {
                        address: VirtualAddress(remote.address.0 + offset),
                        ..remote
                    };
                    let data = Data::SgList(end.region.sge(offset, CHUNK as u32).into());
                    let operation = Operation::Read { remote };
                    let request = SendRequest::new(WorkId(0), operation, data);
                    end.queue_pair.post_send(request).unwrap();
                } else {
                    write(&end, remote, offset, CHUNK, true);
                }
                posted += 1;
            }
            if let Some(one) = end.completions.poll_one() {
                assert_eq!(one.status, Status::Success);
                done += 1;
            }
        }
        TOTAL as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    bulk(false);
    let written = bulk(false);
    let read = bulk(true);

    end.context.statistics();
    let before = processor_time();
    std::thread::sleep(Duration::from_secs(2));
    let idle = processor_time() - before;

    writeln!(input, "tcp").unwrap();
    let mut stream = TcpStream::connect(line()).unwrap();
    stream.set_nodelay(true).unwrap();
    let buffer = vec![7; 16 * CHUNK];
    let start = Instant::now();
    for chunk in buffer.chunks(CHUNK).cycle().take(TOTAL / CHUNK) {
        stream.write_all(chunk).unwrap();
    }
    let mut one = [0];
    stream.read_exact(&mut one).unwrap();
    let tcp = TOTAL as f64 / start.elapsed().as_secs_f64() / 1e9;
    let mut small = [0; SMALL];
    let start = Instant::now();
    for _ in 0..ROUNDS {
        stream.write_all(&small).unwrap();
        stream.read_exact(&mut small).unwrap();
    }
    let tcp_latency = start.elapsed() / (2 * ROUNDS as u32);
    writeln!(input, "end").unwrap();
    child.wait().unwrap();

    println!("1 GB in 4 MB chunks   WRITE {written:.2} GB/s ({:.2} of TCP)", written / tcp);
    println!("                      READ  {read:.2} GB/s ({:.2} of TCP)", read / tcp);
    println!("                      TCP   {tcp:.2} GB/s");
    let ratio = latency.as_secs_f64() / tcp_latency.as_secs_f64();
    println!("64 bytes, one way     WRITE {latency:.2?} ({ratio:.2} of TCP)");
    println!("                      TCP   {tcp_latency:.2?}");
    println!("processor time in 2 s of nothing: {idle:.0?}");
    println!("{:?}", end.context.statistics());
}
