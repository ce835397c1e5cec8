//! B5 partition safety: agreement holds under any suspicion and any partition. It therefore also holds for processes
//! that crashed later, were partitioned or were suspected: for all non-faulty processes except those that an operator
//! removed.

use super::b1_agreement::agreement;
use crate::broadcasts::Broadcasts;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    agreement(view, broadcasts, |process| !view.cluster.is_faulty(process) && !broadcasts.is_removed(view, process))
}
