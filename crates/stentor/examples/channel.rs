//! A channel between two processes: `channel listen` answers each line in capitals, `channel` sends the lines of its
//! input and prints the answers. Run them in two terminals, in either order. On a network, `channel listen
//! 10.0.0.1:7300` and `channel 10.0.0.1:7300` need `.fabric(FabricKind::Roce)` and a `.key(…)` in the code.

use std::error::Error;
use std::io::{self, BufRead};
use std::time::Duration;

use stentor::Channel;

/// Time that one end waits for the other before it returns an error.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).peekable();
    let listens = words.next_if_eq("listen").is_some();
    let place = words.next().unwrap_or_else(|| "example".to_owned());
    if listens { answer(&place) } else { ask(&place) }
}

fn answer(place: &str) -> Result<(), Box<dyn Error>> {
    let mut channel = Channel::listen(place).patience(PATIENCE).open()?;
    let mut message = Vec::new();
    while channel.recv_timeout(&mut message, PATIENCE)? {
        message.make_ascii_uppercase();
        channel.send_timeout(&message, PATIENCE)?;
    }
    Ok(channel.close_timeout(PATIENCE)?)
}

fn ask(place: &str) -> Result<(), Box<dyn Error>> {
    let mut channel = Channel::connect(place).patience(PATIENCE).open()?;
    let mut answer = Vec::new();
    for line in io::stdin().lock().lines() {
        channel.send_timeout(line?.as_bytes(), PATIENCE)?;
        if !channel.recv_timeout(&mut answer, PATIENCE)? {
            return Err("the other end has finished".into());
        }
        println!("{}", String::from_utf8_lossy(&answer));
    }
    Ok(channel.close_timeout(PATIENCE)?)
}
