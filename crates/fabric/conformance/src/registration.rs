//! Regions and the errors of registering them.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, check, same};
use stentor_fabric::memory::WORD;
use stentor_fabric::{Fabric, ProcessId, Purpose, RegionSpec, RegisterError};

pub(super) fn regions_are_zeroed_and_sized<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    for (purpose, bytes) in [(1, 64), (2, 4096), (3, 64 * 1021)] {
        for writer in [B, A] {
            let region = bed.region(A, writer, purpose, bytes / WORD, None)?;
            let words = bed.words(A, region);
            same("words of the region", &words.len(), &(bytes / WORD))?;
            check(words.iter().all(|word| *word == 0), || format!("{region:?} is not zeroed"))?;
        }
    }
    let first = bed.region(A, B, 8, 8, None)?;
    let second = bed.region(A, B, 9, 8, None)?;
    bed.store(A, first, 0, &[7; 8]);
    same("another region after a store", &bed.words(A, second), &vec![0; 8])
}

pub(super) fn errors<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let spec = |purpose, writer, bytes| RegionSpec { purpose: Purpose(purpose), writer, bytes };
    for bytes in [0, 8, 100, 65] {
        same("odd size", &bed.at(A).register(spec(1, B, bytes)), &Err(RegisterError::Size { bytes }))?;
    }
    let nobody = ProcessId(bed.processes() as u16 + 100);
    let got = bed.at(A).register(spec(1, nobody, 64));
    same("region for a process that is not there", &got, &Err(RegisterError::UnknownProcess(nobody)))?;
    called("register", bed.at(A).register(spec(1, B, 64)))?;
    let duplicate = Err(RegisterError::Duplicate { purpose: Purpose(1), writer: B });
    same("the same writer and purpose twice", &bed.at(A).register(spec(1, B, 128)), &duplicate)?;
    called("the same purpose for another writer", bed.at(A).register(spec(1, A, 64)))?;
    called("the same purpose at another owner", bed.at(B).register(spec(1, A, 64)))?;
    Ok(())
}
