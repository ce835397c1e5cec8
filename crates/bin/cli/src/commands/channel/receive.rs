//! The side that listens.

use std::io;

use indicatif::ProgressBar;
use stentor::runtime::FabricDiagnostics;
use stentor_support::Failure;

use super::line::Line;
use super::stream::Sink;
use super::words::{Whole, Words};

const AGAIN: &str = "nothing is resumed: send it again";

/// Receives the whole stream and confirms it. Returns the size and hash of the stream. `name` is the file or stream
/// that it is written to.
pub(super) fn run<F: FabricDiagnostics>(
    line: &mut Line<F>,
    sink: &mut Sink,
    name: &str,
    bar: &ProgressBar,
) -> Result<Whole, Failure> {
    let mut waiting: Option<Vec<u8>> = None;
    let mut told: Option<Whole> = None;
    loop {
        let mut worked = line.turn();
        if let Some(message) = waiting.take() {
            match sink.give(message) {
                Ok(()) => worked = true,
                Err(message) => waiting = Some(message),
            }
        }
        while waiting.is_none()
            && told.is_none()
            && let Some(message) = line.receive()
        {
            worked = true;
            match Words::of(&message, line.place())? {
                Words::Header(Some(bytes)) => bar.set_length(bytes),
                Words::Header(None) => {}
                Words::Data => {
                    bar.inc(message.len() as u64 - 1);
                    waiting = sink.give(message).err();
                }
                Words::End(whole) => told = Some(whole),
                Words::Failed(why) => {
                    line.part(None);
                    return Err(Failure::run(format!("the other side failed: {why}"), line.place(), AGAIN));
                }
            }
        }
        if told.is_some() && waiting.is_none() {
            sink.finish();
        }
        if let Some(written) = sink.written() {
            return confirm(line, sink, written, told, name);
        }
        if told.is_none() && waiting.is_none() && line.has_ended() {
            line.part(None);
            return Err(Failure::run("the other side ended before the transfer was complete", line.place(), AGAIN));
        }
        line.rest(worked)?;
    }
}

/// Reports to the other side what was written, or why it cannot be written.
fn confirm<F: FabricDiagnostics>(
    line: &mut Line<F>,
    sink: &mut Sink,
    written: io::Result<Whole>,
    told: Option<Whole>,
    name: &str,
) -> Result<Whole, Failure> {
    // The file gets its name before the other side learns of the success.
    let kept = written.and_then(|whole| if told == Some(whole) { sink.keep().map(|()| whole) } else { Ok(whole) });
    match kept {
        Ok(whole) => {
            line.part(Some(&Words::End(whole)));
            if told == Some(whole) {
                return Ok(whole);
            }
            let theirs = told.map(|told| told.hex()).unwrap_or_default();
            let what = format!("the received data has SHA-256 {}, but the sent data has {theirs}", whole.hex());
            Err(Failure::run(what, line.place(), AGAIN))
        }
        Err(error) => {
            let what = format!("cannot write: {error}");
            line.part(Some(&Words::Failed(what.clone())));
            let remedy = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room, and send it again",
                io::ErrorKind::AlreadyExists => {
                    "another program made the file meanwhile: name another, and send it again"
                }
                io::ErrorKind::BrokenPipe => "let the program that reads this output read all of it, and send it again",
                _ => AGAIN,
            };
            Err(Failure::run(what, name, remedy))
        }
    }
}
