//! Aeron's media driver. The only argument names its folder. Messages between processes of one host do not pass through
//! the driver.
#![forbid(unsafe_code)]

use std::ffi::CString;

use anyhow::{Context as _, Result};
use rusteron_media_driver::{AeronDriver, AeronDriverContext};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).context("usage: compare-aeron-driver FOLDER")?;
    let context = AeronDriverContext::new()?;
    context.set_dir(&CString::new(folder)?)?;
    let driver = AeronDriver::new(&context)?;
    driver.start(true)?;
    loop {
        driver.main_idle_strategy(driver.main_do_work()?);
    }
}
