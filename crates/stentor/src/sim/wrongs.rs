//! Errors of a user's machine or script that are found during a run.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::failure::SimProperty;

/// The errors, in the order in which they were found; the first of each property.
#[derive(Clone, Debug, Default)]
pub(super) struct Wrongs(Rc<RefCell<Found>>);

#[derive(Debug, Default)]
struct Found {
    all: Vec<(SimProperty, String)>,
    /// Number of errors that are in the trace already.
    told: usize,
}

impl Wrongs {
    pub(super) fn note(&self, property: SimProperty, what: String) {
        let all = &mut self.0.borrow_mut().all;
        if all.iter().all(|(known, _)| *known != property) {
            all.push((property, what));
        }
    }

    /// Returns the errors that are not in the trace yet.
    pub(super) fn news(&self) -> Vec<String> {
        let Found { all, told } = &mut *self.0.borrow_mut();
        let news = all[*told..].iter().map(|(_, what)| what.clone()).collect();
        *told = all.len();
        news
    }

    /// Returns whether user code panicked or a value is lost. Later results are then meaningless.
    pub(super) fn are_fatal(&self) -> bool {
        let is_fatal =
            |(property, _): &(SimProperty, String)| matches!(property, SimProperty::Panic | SimProperty::Restore);
        self.0.borrow().all.iter().any(is_fatal)
    }

    /// Returns all errors.
    pub(super) fn all(&self) -> Vec<(SimProperty, String)> {
        self.0.borrow().all.clone()
    }

    /// Runs user code. Returns `None` if it panicked, and records the panic.
    pub(super) fn run<T>(&self, who: impl FnOnce() -> String, what: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(what)) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.note(SimProperty::Panic, format!("{} panicked: {}", who(), text(&*panic)));
                None
            }
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the panic has no message")
}
