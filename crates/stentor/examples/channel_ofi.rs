//! A channel over libfabric: EFA, InfiniBand, or TCP without such a card.
//!
//! `cargo run -p stentor --example channel_ofi [PROVIDER]` opens both ends in this process, sends three messages there
//! and back, and prints the result. The default provider is `tcp;ofi_rxm`; `stentor doctor` lists the providers of this
//! machine. Your own program needs the feature `ofi`. libfabric is loaded when a process starts; it is not needed to
//! build.

use std::error::Error;
use std::thread;
use std::time::Duration;

use stentor::{Channel, ChannelBuilder, ChannelError, ChannelErrorKind, FabricKind};

/// Address of the listening end. Between two hosts, both ends also need a `key`.
const PLACE: &str = "127.0.0.1:7300";
const PATIENCE: Duration = Duration::from_secs(20);

fn on(end: ChannelBuilder, provider: &str) -> ChannelBuilder {
    end.fabric(FabricKind::Ofi).providers([provider]).patience(PATIENCE)
}

/// Runs the other end, which sends each message back. The ends may open in either order.
fn echo(end: ChannelBuilder) -> Result<(), ChannelError> {
    let (mut channel, mut message) = (end.open()?, Vec::new());
    while channel.recv_timeout(&mut message, PATIENCE)? {
        channel.send_timeout(&message, PATIENCE)?;
    }
    channel.close_timeout(PATIENCE)
}

fn ask(end: ChannelBuilder) -> Result<(), ChannelError> {
    let (mut channel, mut message) = (end.open()?, Vec::new());
    for text in ["one", "two", &"x".repeat(100_000)] {
        channel.send_timeout(text.as_bytes(), PATIENCE)?;
        if channel.recv_timeout(&mut message, PATIENCE)? {
            println!("{} bytes came back: {}", message.len(), message == text.as_bytes());
        }
    }
    channel.close_timeout(PATIENCE)
}

fn main() -> Result<(), Box<dyn Error>> {
    let provider = std::env::args().nth(1).unwrap_or_else(|| "tcp;ofi_rxm".to_owned());
    let other = on(Channel::listen(PLACE), &provider);
    let other = thread::spawn(move || echo(other));
    match ask(on(Channel::connect(PLACE), &provider)) {
        Ok(()) => {}
        // The error names the missing part and the remedy. Not every machine has libfabric.
        Err(error) if error.kind() == ChannelErrorKind::NotStarted => {
            println!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(other.join().map_err(|_| "the other end has panicked")??)
}
