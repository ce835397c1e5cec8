//! Keys that were granted to a peer and then revoked.
//!
//! A write that was posted with a revoked key may stay in flight for a long time. It would land if the same memory were
//! granted again and the device assigned the same key, because the memory keeps its address. This can happen because
//! devices have few keys: Soft-RoCE combines an index with eight random bits. A new grant therefore never uses a
//! remembered key.

use std::collections::VecDeque;

/// Number of keys that are remembered per region and peer. After more revocations, the oldest keys are forgotten and
/// may be assigned again.
const MAX_KEYS: usize = 1024;
/// Maximum number of attempts to obtain a key that is not remembered.
const TRIES: usize = 8;

/// Revoked keys of one region and one peer.
#[derive(Debug, Default)]
pub(super) struct Retired {
    keys: VecDeque<u32>,
}

impl Retired {
    /// Adds a revoked key.
    pub(super) fn add(&mut self, key: u32) {
        if self.keys.len() == MAX_KEYS {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
    }

    /// Creates an object whose key is not among the remembered ones. Returns `None` if all attempts yield remembered
    /// keys.
    pub(super) fn fresh<R, E>(
        &self,
        key: impl Fn(&R) -> u32,
        mut make: impl FnMut() -> Result<R, E>,
    ) -> Result<Option<R>, E> {
        // Objects with remembered keys are kept until the end. While they exist, the device assigns other keys to later
        // objects.
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

    /// A device that assigns the smallest key that is not in use.
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
    fn remembered_key_is_not_assigned_again() {
        let (device, mut retired) = (Device::default(), Retired::default());
        for round in 0..TRIES as u32 {
            let made = retired.fresh(|made: &Made| made.0, || device.make()).unwrap().expect("a key");
            assert_eq!(made.0, round, "the device would assign 0 every time");
            retired.add(made.0);
        }
        assert_eq!(device.0.borrow().len(), 0, "rejected objects are destroyed");
        assert!(retired.fresh(|made: &Made| made.0, || device.make()).unwrap().is_none());
        assert_eq!(retired.fresh(|key: &u32| *key, || Err("no memory")), Err("no memory"));
    }

    #[test]
    fn oldest_keys_are_forgotten() {
        let mut retired = Retired::default();
        (0..=MAX_KEYS as u32).for_each(|key| retired.add(key));
        let fresh = |given| retired.fresh(|key: &u32| *key, || Ok::<_, ()>(given)).unwrap();
        assert_eq!((fresh(0), fresh(1), fresh(MAX_KEYS as u32)), (Some(0), None, None));
    }
}
