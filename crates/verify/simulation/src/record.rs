//! Records of a run other than its verdict: a trace for people, and transcripts for the comparison with other versions.

use stentor_fabric_sim::{SimConfig, Transcript, World};

/// The kind of record of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Record {
    /// No record.
    #[default]
    Nothing,
    /// The trace of the run.
    Trace,
    /// The hashes of the transcripts.
    Hashes,
    /// The transcripts, as text.
    Text,
}

impl Record {
    /// Creates a world with the requested records.
    pub(crate) fn world(self, config: SimConfig) -> World {
        World::new(SimConfig { trace: self == Record::Trace, transcript: self.transcript(), ..config })
    }

    pub(crate) fn transcript(self) -> Option<Transcript> {
        match self {
            Record::Nothing | Record::Trace => None,
            Record::Hashes => Some(Transcript::hashing()),
            Record::Text => Some(Transcript::keeping()),
        }
    }
}

/// The hashes of a seed's transcripts, by the transcripts' names.
pub type SeedHashes = Vec<(&'static str, u64)>;

/// The records of a run. Records that were not requested are empty.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Chrome trace JSON, for `ui.perfetto.dev`.
    pub trace: String,
    transcripts: Vec<(&'static str, Transcript)>,
}

impl Recorded {
    /// Collects the records of a simulated world and the transcript of the run's history. `end` describes the end of
    /// the run in numbers, and `violated` lists the violated properties.
    pub(crate) fn of<'a>(
        world: &World,
        history: Option<Transcript>,
        end: &[u64],
        violated: impl Iterator<Item = &'a str>,
    ) -> Self {
        let trace = if world.traces() { world.trace_json() } else { String::new() };
        let transcripts = [("trace", world.take_transcript()), ("history", history)];
        Recorded { trace, ..Recorded::default() }.with(transcripts, end, violated)
    }

    /// Replaces the transcripts by others with these names. The last one also contains the end of the run.
    pub(crate) fn with<'a, const N: usize>(
        mut self,
        transcripts: [(&'static str, Option<Transcript>); N],
        end: &[u64],
        violated: impl Iterator<Item = &'a str>,
    ) -> Self {
        self.transcripts = transcripts.into_iter().filter_map(|(name, transcript)| Some((name, transcript?))).collect();
        if let Some((_, last)) = self.transcripts.last_mut() {
            last.line("end", end, &[]);
            violated.for_each(|property| last.line(property, &[], &[]));
        }
        self
    }

    /// Returns the hash of each transcript.
    pub fn hashes(&mut self) -> SeedHashes {
        self.transcripts.iter_mut().map(|(name, transcript)| (*name, transcript.hash())).collect()
    }

    /// Returns all transcripts, each after a line with its name.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, transcript) in &self.transcripts {
            text.extend_from_slice(format!("# {name}\n").as_bytes());
            text.extend_from_slice(transcript.text());
        }
        text
    }
}
