//! What is kept of a run beside its verdict: a trace for people, and transcripts for comparison with other versions.

use stentor_fabric_sim::{SimConfig, Transcript, World};

/// What is recorded of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Record {
    /// Nothing.
    #[default]
    Nothing,
    /// The trace.
    Trace,
    /// The hashes of the transcripts.
    Hashes,
    /// The transcripts, as text.
    Text,
}

impl Record {
    /// A world that records what is asked for.
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

/// What was recorded of a run. What was not asked for is empty.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Chrome trace JSON, for `ui.perfetto.dev`.
    pub trace: String,
    transcripts: Vec<(&'static str, Transcript)>,
}

impl Recorded {
    /// Takes what a simulated world recorded, and the transcript of the run's history. `end` says how the run ended, in
    /// numbers, and `violated` names the properties that it violated.
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

    /// The same of transcripts with other names; the last tells of the end.
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

    /// Returns the transcripts, one behind the other, each behind a line with its name.
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
