//! The side that sends.

use indicatif::ProgressBar;
use stentor::runtime::FabricDiagnostics;
use stentor_support::Failure;

use super::line::Line;
use super::stream::{Filled, Source};
use super::words::{DATA, Whole, Words};

/// The next message to send.
enum Next {
    /// Data, which must be read from the source first.
    Data,
    /// The last message, with the size and hash of the stream.
    End(Whole),
    /// No message. The sender waits for the answer to the last message.
    Answer(Whole),
}

/// Sends the whole stream. Returns its size and hash once the other side has confirmed them. `bytes` is the size, if it
/// is known in advance; `name` is the file or stream that is read.
pub(super) fn run<F: FabricDiagnostics>(
    line: &mut Line<F>,
    source: &mut Source,
    (name, bytes): (&str, Option<u64>),
    bar: &ProgressBar,
) -> Result<Whole, Failure> {
    let mut current = Some(Words::Header(bytes).message());
    let mut next = Next::Data;
    loop {
        let mut worked = line.turn();
        if let Some(answer) = line.receive() {
            return heard(line, &answer, &next);
        }
        if let Some(message) = current.take_if(|message| line.send(message)) {
            worked = true;
            if matches!(next, Next::Data) {
                // The header is no part of the stream.
                let data = if message.first() == Some(&DATA) { message.len() as u64 - 1 } else { 0 };
                bar.inc(data);
                source.used(message);
            }
            if let Next::End(whole) = next {
                line.finish();
                next = Next::Answer(whole);
            }
        }
        if current.is_none() && matches!(next, Next::Data) {
            match source.next() {
                Some(Filled::Data(message)) => current = Some(message),
                Some(Filled::End(whole)) => {
                    current = Some(Words::End(whole).message());
                    next = Next::End(whole);
                }
                Some(Filled::Failed(error)) => {
                    let what = format!("cannot read: {error}");
                    line.part(Some(&Words::Failed(what.clone())));
                    return Err(Failure::run(what, name, "nothing is resumed: send it again"));
                }
                None => {}
            }
            worked |= current.is_some();
        }
        line.rest(worked)?;
    }
}

/// Handles an answer of the other side, or its failure.
fn heard<F: FabricDiagnostics>(line: &mut Line<F>, answer: &[u8], next: &Next) -> Result<Whole, Failure> {
    let failed = |what: String, line: &Line<F>| Failure::run(what, line.place(), "nothing is resumed: send it again");
    match Words::of(answer, line.place())? {
        Words::End(theirs) => {
            line.part(None);
            match next {
                Next::Answer(ours) if theirs == *ours => Ok(theirs),
                Next::Answer(ours) => {
                    let (told, sent) = (theirs.hex(), ours.hex());
                    Err(failed(format!("the other side has another SHA-256: {told} there, {sent} here"), line))
                }
                _ => Err(failed("the other side confirmed data before all of it was sent".into(), line)),
            }
        }
        Words::Failed(why) => {
            line.give_up();
            Err(failed(format!("the other side failed: {why}"), line))
        }
        Words::Header(_) | Words::Data => Err(failed("both sides send: one needs --listen".into(), line)),
    }
}
