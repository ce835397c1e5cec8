//! Channels in tokio: one task for each of three channels, all on one thread. The other ends are threads here, so that
//! the example is one file; they may also be processes. The futures do not depend on tokio and work with every
//! executor.

use std::error::Error;
use std::thread;
use std::time::Duration;

use stentor::{Channel, ChannelError};

const PATIENCE: Duration = Duration::from_secs(60);

/// Sends three numbers, each after the answer to the previous one, and returns the sum of the answers.
async fn sum(place: String) -> Result<u64, ChannelError> {
    let mut channel = Channel::connect(&place).start()?;
    channel.ready().await?;
    let (mut answer, mut sum) = (Vec::new(), 0);
    for number in 1..=3_u64 {
        channel.send(&number.to_le_bytes()).await?;
        if !channel.recv(&mut answer).await? {
            break;
        }
        sum += answer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    }
    channel.close().await?;
    Ok(sum)
}

/// Runs the other end, which answers each message with ten times its number in the channel.
fn count(place: &str) -> Result<(), ChannelError> {
    let mut channel = Channel::listen(place).patience(PATIENCE).open()?;
    let mut message = Vec::new();
    while channel.recv_timeout(&mut message, PATIENCE)? {
        let answer = 10 * (channel.sent() + 1);
        channel.send_timeout(&answer.to_le_bytes(), PATIENCE)?;
    }
    channel.close_timeout(PATIENCE)
}

fn main() -> Result<(), Box<dyn Error>> {
    let places = [1, 2, 3].map(|n| format!("tokio-{}-{n}", std::process::id()));
    let others = places.clone().map(|place| thread::spawn(move || count(&place)));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let tasks = places.map(|place| tokio::spawn(sum(place)));
        for (number, task) in (1..).zip(tasks) {
            println!("channel {number}: {}", task.await??);
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    for other in others {
        other.join().map_err(|_| "the other end has panicked")??;
    }
    Ok(())
}
