// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files that are written when all is done, and opened before it begins.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file that can be written. Its content stays until [`Self::write`].
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
}

impl Output {
    /// Opens it, so that a folder that is not there is found out before the work and not behind it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Puts `text` in place of what is there.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(mut self, text: &str) -> Result<()> {
        let mut write = || {
            // Pipes and devices have no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(text.as_bytes())
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }
}
