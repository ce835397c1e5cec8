//! Reporting what a fabric says went wrong.

use std::time::Instant;

use stentor::runtime::FabricDiagnostics;

use super::Repeats;

/// The troubles of a fabric that a process has reported.
///
/// Invariant: the troubles of `repeats` that were held back are reported when their pause ends, so the last one reported about a
/// matter is the present state of it.
#[derive(Default)]
pub struct Troubles {
    repeats: Repeats<String>,
    is_held: bool,
}

impl Troubles {
    /// Reports each new trouble of a fabric, and those that were held back for long enough.
    pub fn report<F: FabricDiagnostics>(&mut self, fabric: &mut F, mut say: impl FnMut(&str)) {
        while let Some(trouble) = fabric.next_trouble() {
            match self.repeats.happened(trouble.clone(), Instant::now()) {
                Some(times) => say(&format!("{trouble}{times}")),
                None => self.is_held = true,
            }
        }
        if self.is_held {
            let due = self.repeats.due(Instant::now());
            self.is_held = due.is_empty();
            due.iter().for_each(|(trouble, times)| say(&format!("{trouble}{times}")));
        }
    }
}
