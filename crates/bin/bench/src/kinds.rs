//! The kind of a phase, which the conductor passes to its processes as a number in shared memory.

/// Declares the kinds of phases of a bench. They are numbered from 1, because 0 ends the processes.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident),* $(,)?) => {
        /// The kind of a phase.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Kind {
            $($(#[$doc])* $kind),*
        }

        impl Kind {
            const ALL: &[Kind] = &[$(Kind::$kind),*];

            fn number(self) -> u64 {
                self as u64 + 1
            }

            fn of(number: u64) -> Self {
                Kind::ALL[number as usize - 1]
            }
        }
    };
}

pub(crate) use kinds;

#[cfg(test)]
mod tests {
    use crate::shared_area::Command;

    kinds! { First, Second }

    #[test]
    fn kinds_go_through_the_command_and_back() {
        for kind in Kind::ALL {
            assert_ne!(kind.number(), Command::END);
            assert_eq!(Kind::of(kind.number()), *kind);
        }
        assert_eq!(Kind::Second.number(), 2);
    }
}
