//! Declarations that the blocks of the book use without showing them.

pub(crate) use std::cell::RefCell;
pub(crate) use std::collections::btree_map::Entry;
pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::error::Error;
pub(crate) use std::io::{self, Read, Write};
pub(crate) use std::rc::Rc;
pub(crate) use std::time::{Duration, Instant};

pub(crate) use stentor::sim::{Next, Seen, SimCluster, Turn};
pub(crate) use stentor::*;

/// Returns a value of any type. The code blocks are compiled but not run, so this function is never called.
pub(crate) fn anything<T>() -> T {
    unimplemented!("blocks are compiled and not run")
}

/// The state machine of the service that `docs/service.md` builds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counter(i64);

impl StateMachine for Counter {
    type Frozen = Counter;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], _: &mut Reply) {
        self.0 += 1;
    }

    fn freeze(&self) -> Counter {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        self.0 = i64::from_le_bytes(bytes);
        Ok(())
    }
}

impl Frozen for Counter {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0.to_le_bytes())
    }
}
