//! The story of a run: its events in words and in order.

/// Maximum number of lines of a story. A longer story loses its first lines.
const MOST_LINES: usize = 4000;

/// The events of a run in words and in order.
#[derive(Debug, Default)]
pub(super) struct Story {
    lines: std::collections::VecDeque<String>,
    /// Number of lines of the nemesis's log that are in the story.
    of_nemesis: usize,
}

impl Story {
    /// Adds the new lines of the nemesis's log.
    pub(super) fn follow(&mut self, log: &[String]) {
        log[self.of_nemesis..].iter().for_each(|line| self.push(line.clone()));
        self.of_nemesis = log.len();
    }

    pub(super) fn push(&mut self, line: String) {
        if self.lines.len() == MOST_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
