//! Names and contents of the nodes.

use std::fmt;

use stentor_fabric::ProcessId;

/// A place in the line of candidates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Sequence number that the server assigned.
    pub sequence: i64,
    /// The candidate.
    pub process: ProcessId,
    /// Name of the node, without its parent's path.
    pub name: String,
}

/// Returns the prefix of a process's nodes, to which the server appends the sequence number.
pub(crate) fn prefix(process: ProcessId) -> String {
    format!("{process}-")
}

fn place(name: &str) -> Option<Place> {
    let (process, sequence) = name.strip_prefix('p')?.split_once('-')?;
    let (process, sequence) = (number(process)?, number(sequence)?);
    let process = u16::try_from(process).ok()?;
    Some(Place { sequence: i64::try_from(sequence).ok()?, process: ProcessId(process), name: name.to_owned() })
}

/// Parses digits only; `str::parse` would accept a sign, too.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Returns the candidates that are members, in the order of their sequence numbers, and the nodes that belong to no
/// member.
pub(crate) fn line(children: Vec<String>, members: &[ProcessId]) -> (Vec<Place>, Vec<String>) {
    let (mut line, mut foreign) = (Vec::new(), Vec::new());
    for child in children {
        match place(&child).filter(|place| members.contains(&place.process)) {
            Some(place) => line.push(place),
            None => foreign.push(child),
        }
    }
    line.sort_by_key(|place| place.sequence);
    (line, foreign)
}

/// Content of the register: the largest epoch so far, and the successor that a leader preferred when it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Register {
    pub epoch: u64,
    pub preferred: Option<ProcessId>,
}

impl Register {
    /// Parses `17` or `17 p3`. Empty data is epoch 0.
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let text = str::from_utf8(data).ok()?;
        if text.is_empty() {
            return Some(Register::default());
        }
        let (number, preferred) = match text.split_once(' ') {
            None => (text, None),
            Some((number, process)) => {
                let process = u16::try_from(self::number(process.strip_prefix('p')?)?).ok()?;
                (number, Some(ProcessId(process)))
            }
        };
        Some(Register { epoch: epoch(number)?, preferred })
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.epoch)?;
        self.preferred.map_or(Ok(()), |process| write!(f, " {process}"))
    }
}

fn epoch(text: &str) -> Option<u64> {
    number(text).filter(|epoch| *epoch < stentor_election::Claim::EPOCH_LIMIT)
}

/// Parses the epoch in a candidate's node. It is 0 if the candidate has not claimed leadership.
pub(crate) fn claimed(data: &[u8]) -> Option<u64> {
    let text = str::from_utf8(data).ok()?;
    if text.is_empty() { Some(0) } else { epoch(text) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

    #[test]
    fn line_is_sorted_by_sequence_without_foreign_nodes() {
        let names =
            ["p1-0000000012", "p9-0000000001", "p0-0000000100", "junk", "p2-0000000003", "p2-x", "p0-+000000001"];
        let (line, foreign) = line(names.map(String::from).to_vec(), &P);
        let order: Vec<_> = line.iter().map(|place| (place.process.0, place.sequence)).collect();
        assert_eq!(order, [(2, 3), (1, 12), (0, 100)]);
        assert_eq!(foreign, ["p9-0000000001", "junk", "p2-x", "p0-+000000001"]);
    }

    #[test]
    fn registers_survive_encoding() {
        for register in [Register::default(), Register { epoch: 17, preferred: Some(P[2]) }] {
            assert_eq!(Register::parse(register.to_string().as_bytes()), Some(register));
        }
        assert_eq!(Register::parse(b""), Some(Register::default()));
        assert_eq!((claimed(b""), claimed(b"5"), claimed(b"5 p1")), (Some(0), Some(5), None));
    }

    #[test]
    fn malformed_registers_are_refused() {
        for text in
            ["x", "-1", "+1", "1 2", "1 p", "1 p65536", " 1", "1 ", "1 p1 ", "70368744177664", "99999999999999999999"]
        {
            assert_eq!(Register::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Register::parse(&[0xff]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(data in proptest::collection::vec(any::<u8>(), 0..64), names in proptest::collection::vec(".*", 0..8)) {
            let _ = (Register::parse(&data), claimed(&data));
            let count = names.len();
            let (line, foreign) = line(names, &P);
            prop_assert_eq!(line.len() + foreign.len(), count);
        }
    }
}
