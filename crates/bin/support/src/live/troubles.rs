//! Reports troubles of a fabric, such as connections that fail.

use std::time::Instant;

use stentor::runtime::FabricDiagnostics;
use stentor_fabric::ProcessId;

use super::Repeats;

/// The troubles of a fabric that a process has reported.
///
/// Invariant: troubles that `repeats` held back are reported when their pause ends. The last report about a peer or a
/// resource therefore describes its present state.
#[derive(Default)]
pub struct Troubles {
    repeats: Repeats<String>,
    is_held: bool,
    expelled: Vec<ProcessId>,
}

impl Troubles {
    /// Reports each new trouble of a fabric, and the earlier ones whose pause is over.
    pub fn report<F: FabricDiagnostics>(&mut self, fabric: &mut F, mut say: impl FnMut(&str)) {
        while let Some(trouble) = fabric.next_trouble() {
            self.note(&trouble, &mut say);
        }
        if self.is_held {
            let due = self.repeats.due(Instant::now());
            self.is_held = due.is_empty();
            due.iter().for_each(|(trouble, times)| say(&format!("{trouble}{times}")));
        }
    }

    /// Reports the processes that this one has stopped waiting for, and those that it waits for again. `expelled` are
    /// the processes that it does not wait for now.
    pub fn report_expelled<'a>(
        &mut self,
        expelled: impl Iterator<Item = ProcessId>,
        name: impl Fn(ProcessId) -> &'a str,
        mut say: impl FnMut(&str),
    ) {
        let before = std::mem::replace(&mut self.expelled, expelled.collect());
        let now = self.expelled.clone();
        for process in now.iter().filter(|process| !before.contains(process)) {
            let name = name(*process);
            let text = format!(
                "{name} stands still: it reads nothing that is written to it, so this process waits for it no longer; when it goes on it \
                 gets what it missed"
            );
            self.note(&text, &mut say);
        }
        for process in before.iter().filter(|process| !now.contains(process)) {
            self.note(&format!("{} goes on, and is waited for again", name(*process)), &mut say);
        }
    }

    fn note(&mut self, trouble: &str, say: &mut impl FnMut(&str)) {
        match self.repeats.happened(trouble.to_owned(), Instant::now()) {
            Some(times) => say(&format!("{trouble}{times}")),
            None => self.is_held = true,
        }
    }
}
