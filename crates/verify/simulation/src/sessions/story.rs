//! What happened in a run, in words and in order.

/// Lines that are kept of a run: of a longer one the first are dropped.
const MOST_LINES: usize = 4000;

/// What happened in a run, in words and in order.
#[derive(Debug, Default)]
pub(super) struct Story {
    lines: std::collections::VecDeque<String>,
    /// Lines of the nemesis that are here.
    of_nemesis: usize,
}

impl Story {
    /// Adds what the nemesis has done since.
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
