//! B5 partition safety: agreement holds under any suspicion and any partition. So it holds also for processes that
//! crashed later, were cut off, or were taken for dead: for everybody who does not lie, but those that an operator removed.

use super::b1_agreement::agreement;
use crate::broadcasts::Broadcasts;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    agreement(view, broadcasts, |process| !view.cluster.is_faulty(process) && !broadcasts.is_removed(view, process))
}
