//! Computes the row of a program that is not written in Rust. That program has written the times of its deliveries to
//! the shared folder, and the times at which it sent the messages to the file `sent` there. The arguments are those of
//! every program of a comparison.
#![forbid(unsafe_code)]

use anyhow::Result;
use clap::Parser as _;
use compare_measure::{Options, Times, finish};

fn main() -> Result<()> {
    let options = Options::parse();
    let sent = Times::read(&options.folder.join("sent"))?;
    finish(&options, &sent)
}
