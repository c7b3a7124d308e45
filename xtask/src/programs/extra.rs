// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that exist as source only.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::crates;
use super::table::Row;
use crate::shell;

/// Ours, for MPI.
const RING: &str = include_str!("ring.c");
/// Debian's package and file of an example of UCX.
const UCX: (&str, &str) = ("libucx-dev", "usr/share/doc/libucx-dev/examples");

/// Compiles those that the rows want into `bin`.
pub(crate) fn compile<'a>(rows: impl Iterator<Item = &'a Row> + Clone, bin: &Path) -> Result<()> {
    let wanted = |name: &str| rows.clone().any(|row| row.client.contains(name));
    if wanted("mpi_ring") {
        let source = bin.join("mpi_ring.c");
        fs::write(&source, RING)?;
        let mut mpicc = shell::program("mpicc");
        shell::run(mpicc.arg("-O1").arg("-o").arg(bin.join("mpi_ring")).arg(source))?;
    }
    if wanted("ucp_client_server") {
        let examples = packaged(UCX.0, UCX.1, &bin.join("ucx"))?;
        let mut cc = shell::program("cc");
        cc.arg("-O1").arg("-o").arg(bin.join("ucp_client_server"));
        cc.arg(examples.join("ucp_client_server.c")).args(["-lucp", "-lucs"]);
        shell::run(&mut cc)?;
    }
    for &named in crates::ALL {
        if rows.clone().any(|row| row.group == named) {
            crates::build(named, bin)?;
        }
    }
    Ok(())
}

/// A folder of documentation: where its package was installed, or, as images for containers leave
/// documentation out, out of a copy of the package.
pub(crate) fn packaged(package: &str, folder: &str, scratch: &Path) -> Result<PathBuf> {
    let installed = Path::new("/").join(folder);
    if installed.is_dir() {
        return Ok(installed);
    }
    fs::create_dir_all(scratch)?;
    let mut download = shell::program("apt-get");
    shell::run(download.current_dir(scratch).args(["-qq", "download", package]))?;
    let mut files = fs::read_dir(scratch)?.flatten().map(|entry| entry.path());
    let deb = files.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let deb = deb.with_context(|| format!("apt-get download {package} brings no package"))?;
    shell::run(shell::program("dpkg-deb").arg("--extract").arg(deb).arg(scratch))?;
    let found = scratch.join(folder);
    ensure!(found.is_dir(), "{package} has no {folder}");
    Ok(found)
}
