//! Keys that a peer had and has no more.
//!
//! A write that was posted with such a key may be under way for long. It finds nothing as long as no device gives out the key
//! again for the same memory, which stays where it is when it is granted anew. Devices have few keys: Soft-RoCE counts places and
//! draws eight bits.

use std::collections::VecDeque;

/// Keys that are remembered; whoever was fenced more often than that may find the oldest of them again.
const MAX_KEYS: usize = 1024;
/// How often another key is asked for.
const TRIES: usize = 8;

/// Those of one region and one peer.
#[derive(Debug, Default)]
pub(super) struct Retired {
    keys: VecDeque<u32>,
}

impl Retired {
    /// A key was taken back.
    pub(super) fn add(&mut self, key: u32) {
        if self.keys.len() == MAX_KEYS {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
    }

    /// Makes something whose key is not among them; `None` if the device gives out nothing else.
    pub(super) fn fresh<R, E>(
        &self,
        key: impl Fn(&R) -> u32,
        mut make: impl FnMut() -> Result<R, E>,
    ) -> Result<Option<R>, E> {
        // While these are there, the next ones have other keys.
        let mut stale = Vec::new();
        while stale.len() < TRIES {
            let made = make()?;
            if !self.keys.contains(&key(&made)) {
                return Ok(Some(made));
            }
            stale.push(made);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A device with so few keys that it gives out the smallest that nobody has.
    #[derive(Clone, Default)]
    struct Device(Rc<RefCell<Vec<u32>>>);

    struct Made(u32, Device);

    impl Device {
        fn make(&self) -> Result<Made, ()> {
            let key = (0..).find(|key| !self.0.borrow().contains(key)).ok_or(())?;
            self.0.borrow_mut().push(key);
            Ok(Made(key, self.clone()))
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            self.1.0.borrow_mut().retain(|key| *key != self.0);
        }
    }

    #[test]
    fn no_key_comes_twice_while_it_is_remembered() {
        let (device, mut retired) = (Device::default(), Retired::default());
        for round in 0..TRIES as u32 {
            let made = retired.fresh(|made: &Made| made.0, || device.make()).unwrap().expect("a key");
            assert_eq!(made.0, round, "a device that would give out 0 for ever");
            retired.add(made.0);
        }
        assert_eq!(device.0.borrow().len(), 0, "whatever was made in vain is gone");
        assert!(retired.fresh(|made: &Made| made.0, || device.make()).unwrap().is_none());
        assert_eq!(retired.fresh(|key: &u32| *key, || Err("no memory")), Err("no memory"));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut retired = Retired::default();
        (0..=MAX_KEYS as u32).for_each(|key| retired.add(key));
        let fresh = |given| retired.fresh(|key: &u32| *key, || Ok::<_, ()>(given)).unwrap();
        assert_eq!((fresh(0), fresh(1), fresh(MAX_KEYS as u32)), (Some(0), None, None));
    }
}
