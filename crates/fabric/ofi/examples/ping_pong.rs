//! Measures a tagged ping-pong directly on libfabric. Channels on the same provider are compared with this lower bound.
//!
//! Run it with `cargo run --release -p stentor-fabric-ofi --example ping_pong -- PROVIDER ADDRESS [ROUNDS]`. It starts
//! a second process as the other end. It prints half of the median round-trip time for messages of 8 bytes, 4 KiB and
//! 64 KiB, and the rate of 1 MiB messages with 16 in flight.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stentor_fabric_ofi::Bare;

type Failure = Box<dyn std::error::Error>;

const SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];
const LARGE: usize = 1 << 20;
const DEEP: usize = 16;

/// One end of the connection. Bulk data uses the places below `DEEP`, and its short replies use place `DEEP`. The
/// ping-pong sends from place 0 and receives into place `DEEP`.
struct Side(Bare);

impl Side {
    fn post(&mut self, place: usize, bytes: usize, sends: bool) -> Result<(), Failure> {
        while !(if sends { self.0.send(place, bytes) } else { self.0.receive(place, bytes) })? {
            self.progress()?;
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failure> {
        if !self.0.progress().map_err(|failure| failure.to_string())? {
            // Both processes may share one processor.
            std::thread::yield_now();
        }
        Ok(())
    }

    fn until(&mut self, received: u64, sent: u64) -> Result<(), Failure> {
        while self.0.counts().0 < received || self.0.counts().1 < sent {
            self.progress()?;
        }
        Ok(())
    }

    /// Returns the median of half the round-trip time for messages of `bytes` bytes.
    fn latency(&mut self, bytes: usize, rounds: usize, begins: bool) -> Result<Duration, Failure> {
        let (mut received, mut sent) = self.0.counts();
        let mut times = Vec::with_capacity(rounds);
        self.post(DEEP, bytes, false)?;
        for round in 1..=rounds {
            let start = Instant::now();
            if begins {
                self.post(0, bytes, true)?;
            }
            received += 1;
            self.until(received, sent)?;
            if round < rounds {
                self.post(DEEP, bytes, false)?;
            }
            if !begins {
                self.post(0, bytes, true)?;
            }
            sent += 1;
            self.until(received, sent)?;
            times.push(start.elapsed() / 2);
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Sends batches of 16 messages of 1 MiB. One small message answers each batch. Returns the rate in bytes per
    /// second.
    fn rate(&mut self, rounds: usize, begins: bool) -> Result<f64, Failure> {
        let (mut received, mut sent) = self.0.counts();
        let start = Instant::now();
        for _ in 0..rounds {
            for place in 0..DEEP {
                self.post(place, LARGE, begins)?;
            }
            if begins {
                sent += DEEP as u64;
                self.post(DEEP, 8, false)?;
                received += 1;
            } else {
                received += DEEP as u64;
            }
            self.until(received, sent)?;
            if !begins {
                self.post(DEEP, 8, true)?;
                sent += 1;
                self.until(received, sent)?;
            }
        }
        Ok((rounds * DEEP * LARGE) as f64 / start.elapsed().as_secs_f64())
    }

    fn run(&mut self, rounds: usize, begins: bool) -> Result<(), Failure> {
        for bytes in SIZES {
            let half = self.latency(bytes, rounds, begins)?;
            if begins {
                println!("{bytes:8} bytes {:10.2} us", half.as_secs_f64() * 1e6);
            }
        }
        let rate = self.rate((rounds / 100).max(4), begins)?;
        if begins {
            println!("{LARGE:8} bytes {:10.1} MB/s", rate / 1e6);
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Failure> {
    let pairs = (0..text.len() / 2).map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16));
    Ok(pairs.collect::<Result<_, _>>()?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let (Some(provider), Some(address)) = (arguments.get(1), arguments.get(2)) else {
        return Err("usage: ping_pong PROVIDER ADDRESS [ROUNDS]".into());
    };
    let rounds = arguments.get(3).map_or(Ok(10_000), |text| text.parse())?;
    let mut side = Side(Bare::open(provider, (address.parse()?, 0), DEEP + 1, LARGE)?);
    let own = hex(&side.0.address()?);
    if let Some(theirs) = arguments.get(4) {
        side.0.know(&unhex(theirs)?)?;
        println!("{own}");
        return side.run(rounds, false);
    }
    println!("provider {} on {}", side.0.provider().provider(), side.0.provider().domain());
    std::io::stdout().flush()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([provider, address, &rounds.to_string(), &own])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    side.0.know(&unhex(line.trim())?)?;
    side.run(rounds, true)?;
    child.wait()?;
    Ok(())
}
