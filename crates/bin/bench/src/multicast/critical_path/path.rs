//! The longest chain of reactions by dependency.

use std::collections::{HashMap, HashSet};

use super::reaction::{Output, Reaction, Reactions, Write};

/// One step of a path: a process, and the time of its output in nanoseconds since the client's call.
pub(super) type Step = (usize, f64);

/// A reaction with its time.
struct Node {
    process: usize,
    /// The node for whose output this reaction waited last, and the time of that output.
    after: Option<(usize, f64)>,
}

/// The reactions of a message in time.
#[derive(Default)]
struct Timeline {
    nodes: Vec<Node>,
    /// Node and time of each write.
    written: HashMap<Write, (usize, f64)>,
    /// Node and time of each process's last output.
    free: Vec<Option<(usize, f64)>>,
    /// Node and time of each process's delivery.
    delivered: Vec<Option<(usize, f64)>>,
}

fn later(a: Option<(usize, f64)>, b: Option<(usize, f64)>) -> Option<(usize, f64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.1 > a.1 { b } else { a }),
        (a, b) => a.or(b),
    }
}

impl Timeline {
    fn place(&mut self, process: usize, reaction: &Reaction) {
        let inputs = reaction.inputs.iter().filter_map(|input| self.written.get(input).copied());
        let after = inputs.map(Some).fold(self.free[process], later);
        if after.is_none() && !reaction.inputs.is_empty() {
            // None of the reaction's inputs belong to this message.
            return;
        }
        let (node, start) = (self.nodes.len(), after.map_or(0.0, |(_, at)| at));
        self.nodes.push(Node { process, after });
        for (output, ns) in &reaction.outputs {
            let done = (node, start + ns);
            self.free[process] = later(self.free[process], Some(done));
            match output {
                Output::Write(write) => {
                    self.written.insert(*write, done);
                }
                Output::Delivered => self.delivered[process] = self.delivered[process].or(Some(done)),
            }
        }
    }

    /// Returns the steps that lead to an output.
    fn steps(&self, (mut node, mut at): (usize, f64)) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        loop {
            let Node { process, after } = self.nodes[node];
            // Earlier work of the same process is a part of its step.
            if steps.last().is_none_or(|(last, _)| *last != process) {
                steps.push((process, at));
            }
            match after {
                Some(before) => (node, at) = before,
                None => break,
            }
        }
        steps.reverse();
        steps
    }
}

/// Returns the path from the client's call to the last delivery at one of the first `destinations` processes.
///
/// A reaction begins when the last of its inputs has left its writer and the process has finished its previous
/// reaction. An input that no process writes in these reactions is ignored: the reactions of each process come from
/// different messages, and one of them may have had one more credit. Returns `None` if a destination does not deliver.
pub(super) fn longest(messages: &[&Reactions], destinations: usize) -> Option<Vec<Step>> {
    let outputs = messages.iter().copied().flatten().flat_map(|reaction| &reaction.outputs);
    let write_of = |output: &(Output, f64)| if let Output::Write(write) = output.0 { Some(write) } else { None };
    let written: HashSet<Write> = outputs.filter_map(write_of).collect();
    let mut line =
        Timeline { free: vec![None; messages.len()], delivered: vec![None; messages.len()], ..Timeline::default() };
    let mut next = vec![0; messages.len()];
    loop {
        let mut progress = false;
        for (process, reactions) in messages.iter().enumerate() {
            while let Some(reaction) = reactions.get(next[process]) {
                let is_there = |input| line.written.contains_key(input) || !written.contains(input);
                if !reaction.inputs.iter().all(is_there) {
                    break;
                }
                line.place(process, reaction);
                (next[process], progress) = (next[process] + 1, true);
            }
        }
        if !progress {
            break;
        }
    }
    let all = line.delivered[..destinations].iter().copied().collect::<Option<Vec<_>>>()?;
    let last = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(line.steps(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: usize = 3;

    fn write(from: usize, to: usize) -> Write {
        Write { from, to, nth: 0 }
    }

    fn reaction(inputs: &[Write], outputs: &[(Output, f64)]) -> Reaction {
        Reaction { inputs: inputs.to_vec(), outputs: outputs.to_vec() }
    }

    /// Returns the reactions of a leader, two followers and a client. The client writes to all within 100 ns.
    fn messages(slow: f64) -> Vec<Reactions> {
        let to = |from, to, ns| (Output::Write(write(from, to)), ns);
        let body = |member| write(CLIENT, member);
        let leader = vec![
            reaction(&[body(0)], &[to(0, 1, 200.0), to(0, 2, 200.0)]),
            reaction(&[write(1, 0)], &[(Output::Delivered, 150.0)]),
        ];
        let follower =
            |me, ns| vec![reaction(&[body(me), write(0, me)], &[(Output::Delivered, ns), to(me, 0, ns + 30.0)])];
        let client = vec![reaction(&[], &[to(CLIENT, 0, 100.0), to(CLIENT, 1, 100.0), to(CLIENT, 2, 100.0)])];
        vec![leader, follower(1, 250.0), follower(2, slow), client]
    }

    fn path(messages: &[Reactions]) -> Option<Vec<Step>> {
        longest(&messages.iter().collect::<Vec<_>>(), 3)
    }

    #[test]
    fn the_path_is_the_longest_by_dependency_not_the_sum() {
        // The sum of all work would be 100 + 200 + 150 + 280 + 290.
        let steps = path(&messages(260.0)).expect("all members deliver");
        assert_eq!(steps, [(CLIENT, 100.0), (0, 300.0), (1, 580.0), (0, 730.0)]);
        let steps = path(&messages(900.0)).expect("all members deliver");
        assert_eq!(steps, [(CLIENT, 100.0), (0, 300.0), (2, 1200.0)], "another member is the last");
    }

    #[test]
    fn a_process_handles_one_reaction_at_a_time() {
        let mut messages = messages(260.0);
        // The leader is busy with other work when the acknowledgement arrives at 580.
        messages[0][0].outputs.push((Output::Write(Write { from: 0, to: CLIENT, nth: 0 }), 1000.0));
        let steps = path(&messages).expect("all members deliver");
        assert_eq!(steps, [(CLIENT, 100.0), (0, 1250.0)]);
    }

    #[test]
    fn unwritten_inputs_are_ignored_and_missing_deliveries_are_noticed() {
        let mut messages = messages(260.0);
        messages[1][0].inputs.push(Write { from: 2, to: 1, nth: 5 });
        assert_eq!(path(&messages).expect("all members deliver").last(), Some(&(0, 730.0)));
        messages[2][0].outputs.remove(0);
        assert_eq!(path(&messages), None);
    }

    #[test]
    fn processes_that_wait_for_each_other_have_no_path() {
        let mut messages = messages(260.0);
        messages[0][0].inputs.push(write(1, 0));
        assert_eq!(path(&messages), None);
    }
}
