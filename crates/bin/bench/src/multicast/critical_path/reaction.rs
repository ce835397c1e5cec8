//! The reactions of a process to the writes that it receives, computed from the logs of all processes.

use std::ops::Range;

use super::log::{Entry, Mark};

/// A write of a message: the `nth` one from a process to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Write {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) nth: usize,
}

/// An output of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Output {
    Write(Write),
    Delivered,
}

/// The outputs of a process from the arrival of the last of its inputs until the next input arrives.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Reaction {
    /// The writes that the process waited for. Empty for the client's call.
    pub(super) inputs: Vec<Write>,
    /// Each output with its time since the last input, in nanoseconds.
    pub(super) outputs: Vec<(Output, f64)>,
}

/// The reactions of one process to a message, in their order.
pub(super) type Reactions = Vec<Reaction>;

/// Returns the reactions of `measured` to each message of the client. The client's calls separate the messages. Each
/// mark costs a reading of the clock, `clock_ns`, which is subtracted from the later times of the same reaction.
pub(super) fn of_messages(logs: &[Vec<Entry>], client: usize, measured: usize, clock_ns: f64) -> Vec<Reactions> {
    let calls = logs[client].iter().filter(|entry| entry.mark == Mark::Submitted).map(|entry| entry.at);
    let mut starts: Vec<u64> = calls.collect();
    starts.push(u64::MAX);
    let mut at = vec![0; logs.len()];
    let one = |span: &[u64]| {
        let messages = logs.iter().zip(&mut at).map(|(log, at)| of_span(log, at, span[0]..span[1]));
        of_message(&messages.collect::<Vec<_>>(), measured, clock_ns)
    };
    starts.windows(2).map(one).collect()
}

/// Returns whether an output took longer than `longest` nanoseconds. Such a measurement is useless, because after that
/// time the other processes continue, and their further writes arrive.
pub(super) fn is_interrupted(reactions: &Reactions, longest: f64) -> bool {
    reactions.iter().flat_map(|reaction| &reaction.outputs).any(|(_, ns)| *ns > longest)
}

/// Returns the entries of a log within a time span, starting at index `at`, and moves `at` past them.
fn of_span<'a>(log: &'a [Entry], at: &mut usize, span: Range<u64>) -> &'a [Entry] {
    let log = &log[*at..];
    let first = log.partition_point(|entry| entry.at < span.start);
    let end = log.partition_point(|entry| entry.at < span.end);
    *at += end;
    &log[first..end]
}

/// An event at the measured process. Events are sorted by time.
enum Happening {
    Input(Write),
    Own(Mark),
}

fn of_message(logs: &[&[Entry]], measured: usize, clock_ns: f64) -> Reactions {
    let mut all = Vec::new();
    for (from, log) in logs.iter().enumerate() {
        if from == measured {
            all.extend(log.iter().map(|entry| (entry.at, Happening::Own(entry.mark))));
            continue;
        }
        let to_it = log.iter().filter(|entry| entry.mark == Mark::Wrote(measured));
        let input = |(nth, entry): (usize, &Entry)| (entry.at, Happening::Input(Write { from, to: measured, nth }));
        all.extend(to_it.enumerate().map(input));
    }
    all.sort_by_key(|(at, _)| *at);
    let (mut reactions, mut now, mut since) = (Reactions::new(), Reaction::default(), None);
    let (mut readings, mut last_mark) = (0, 0);
    let mut written = vec![0; logs.len()];
    for (at, happening) in all {
        let output = match happening {
            Happening::Input(write) => {
                if !now.outputs.is_empty() {
                    reactions.push(std::mem::take(&mut now));
                }
                now.inputs.push(write);
                (since, readings, last_mark) = (Some(at), 0, 0);
                continue;
            }
            Happening::Own(Mark::Submitted) => {
                // The directly measured latency begins with the same reading of the clock, so none is subtracted.
                (since, readings, last_mark) = (Some(at), 0, at);
                continue;
            }
            Happening::Own(Mark::Delivered) => Output::Delivered,
            Happening::Own(Mark::Wrote(to)) => {
                written[to] += 1;
                Output::Write(Write { from: measured, to, nth: written[to] - 1 })
            }
        };
        // All writes of a flush share one reading.
        if last_mark != at && last_mark != 0 && !now.outputs.is_empty() {
            readings += 1;
        }
        last_mark = at;
        if let Some(since) = since {
            let ns = at.saturating_sub(since) as f64 - f64::from(readings) * clock_ns;
            now.outputs.push((output, ns.max(0.0)));
        }
    }
    if !now.outputs.is_empty() {
        reactions.push(now);
    }
    reactions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(u64, Mark)]) -> Vec<Entry> {
        entries.iter().map(|(at, mark)| Entry { at: *at, mark: *mark }).collect()
    }

    fn write(from: usize, to: usize, nth: usize) -> Write {
        Write { from, to, nth }
    }

    /// Returns the logs of a leader (0), a follower (1) and a client (2), with two messages.
    fn logs() -> Vec<Vec<Entry>> {
        use Mark::{Delivered, Submitted, Wrote};
        vec![
            log(&[(150, Wrote(1)), (400, Delivered), (450, Wrote(2)), (1160, Wrote(1))]),
            log(&[(220, Delivered), (250, Wrote(0)), (250, Wrote(2)), (1300, Wrote(0))]),
            log(&[(50, Submitted), (100, Wrote(0)), (100, Wrote(1)), (1000, Submitted), (1060, Wrote(0))]),
        ]
    }

    #[test]
    fn a_reaction_begins_with_the_last_write_before_it() {
        let leader = of_messages(&logs(), 2, 0, 20.0);
        assert_eq!(leader.len(), 2);
        let [first, second] = &leader[0][..] else { panic!("{leader:?}") };
        assert_eq!(first.inputs, [write(2, 0, 0)]);
        assert_eq!(first.outputs, [(Output::Write(write(0, 1, 0)), 50.0)]);
        assert_eq!(second.inputs, [write(1, 0, 0)]);
        let to_client = Output::Write(write(0, 2, 0));
        assert_eq!(second.outputs, [(Output::Delivered, 150.0), (to_client, 180.0)], "one reading is subtracted");
        assert_eq!(leader[1][0].outputs, [(Output::Write(write(0, 1, 0)), 100.0)], "times of each message begin anew");
    }

    #[test]
    fn writes_before_the_first_output_are_inputs_of_one_reaction() {
        let follower = of_messages(&logs(), 2, 1, 20.0);
        let [only] = &follower[0][..] else { panic!("{follower:?}") };
        assert_eq!(only.inputs, [write(2, 1, 0), write(0, 1, 0)]);
        let to = |peer| Output::Write(write(1, peer, 0));
        assert_eq!(only.outputs, [(Output::Delivered, 70.0), (to(0), 80.0), (to(2), 80.0)]);
    }

    #[test]
    fn reaction_longer_than_the_pause_was_interrupted() {
        let leader = of_messages(&logs(), 2, 0, 20.0);
        assert!(!is_interrupted(&leader[0], 180.0) && is_interrupted(&leader[0], 179.0));
    }

    #[test]
    fn a_client_begins_by_itself() {
        let client = of_messages(&logs(), 2, 2, 20.0);
        let [only] = &client[0][..] else { panic!("{client:?}") };
        assert_eq!(only.inputs, []);
        assert_eq!(only.outputs.iter().map(|(_, ns)| *ns).collect::<Vec<_>>(), [50.0, 50.0]);
    }
}
