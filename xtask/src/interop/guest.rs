// SPDX-License-Identifier: MIT OR Apache-2.0

//! A guest with siw, the network between it and this project's end, and what runs on both.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::matrix::{Boot, Setting};
use crate::dist::{self, Build};
use crate::programs::lab::{ip, ip_quietly, kill_all_in, open_directory, remove_leftovers};
use crate::programs::process::{LOOK, Process};
use crate::{nobody, shell};

/// An emulated guest on a busy machine comes up in less.
const BOOT: Duration = Duration::from_secs(300);
/// A job begins, or ends when it is told to, in less.
const PROMPT: Duration = Duration::from_secs(20);

/// Addresses, as `interop/guest/run` has them.
pub(crate) const HERE: [&str; 2] = ["10.77.0.1", "fd77::1"];
pub(crate) const THERE: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// The things that boot guests, and that a run of the matrix needs beside: an installation,
/// compiled programs, and network namespaces. All of it goes when this goes.
pub(crate) struct Site {
    /// The program that boots a guest.
    run: PathBuf,
    /// The kind of that guest.
    pub(crate) kind: String,
    directory: PathBuf,
    /// The guest's end of the link is in the first; ours is too, or in the second where the link
    /// between them is a bad one.
    namespaces: [String; 2],
}

impl Site {
    /// The kind of guest that is there.
    ///
    /// # Errors
    ///
    /// When there is none: how to get one.
    pub(crate) fn guest() -> Result<(PathBuf, String)> {
        if let Some(other) = env::var_os("PEER_VM") {
            let run = Path::new(&other).join("run");
            ensure!(run.is_file(), "PEER_VM: there is no {}", run.display());
            return Ok((run, "PEER_VM".to_owned()));
        }
        let run = shell::root().join("interop/guest/run");
        let output = Command::new(&run).arg("--which").stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok((run, String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    /// Lays out what was built.
    pub(crate) fn new() -> Result<Self> {
        let (run, kind) = Self::guest()?;
        remove_leftovers();
        let pid = std::process::id();
        let directory = env::temp_dir().join(format!("iwarp-lab-{pid}-interop"));
        let namespaces = ["wire", "ours"].map(|name| format!("iwarp-{pid}-{name}"));
        let site = Self { run, kind, directory, namespaces };
        open_directory(&site.directory)?;
        dist::stage(&site.directory.join("iwarp"), Build::Ci)?;
        let bin = site.directory.join("bin");
        open_directory(&bin)?;
        let example = Build::Ci.folder().join("examples/siw_exchange");
        fs::copy(&example, bin.join("siw_exchange"))
            .with_context(|| format!("{}", example.display()))?;
        let interop = shell::root().join("interop");
        for (name, libraries) in [("siw_peer", &["-lrdmacm", "-libverbs"][..]), ("rxe_link", &[])] {
            let mut cc = shell::program("cc");
            cc.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(bin.join(name));
            cc.arg(interop.join(name).with_extension("c")).args(libraries);
            shell::run(&mut cc)?;
        }
        Ok(site)
    }

    /// The factor by which everything takes longer there than on the machine itself.
    pub(crate) fn slowness(&self) -> u32 {
        if self.kind == "QEMU" { 4 } else { 1 }
    }

    fn make_namespaces(&self) -> Result<()> {
        for name in &self.namespaces {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn remove_namespaces(&self) {
        for name in &self.namespaces {
            if !Path::new("/run/netns").join(name).exists() {
                continue;
            }
            kill_all_in(name);
            ip_quietly(&["netns", "del", name]);
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.remove_namespaces();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A guest that is up.
pub(crate) struct Guest<'a> {
    site: &'a Site,
    pub(crate) boot: Boot,
    process: Process,
    link: Option<Process>,
    /// `/host` in it.
    shared: PathBuf,
    jobs: u32,
}

impl<'a> Guest<'a> {
    /// Boots one, with a wire to it.
    pub(crate) fn boot(site: &'a Site, boot: &Boot) -> Result<Self> {
        site.remove_namespaces();
        site.make_namespaces()?;
        let shared = site.directory.join("shared");
        let _ = fs::remove_dir_all(&shared);
        open_directory(&shared)?;
        open_directory(&shared.join("bin"))?;
        fs::copy(site.directory.join("bin/siw_peer"), shared.join("bin/siw_peer"))?;
        let mut run = Command::new("setpriv");
        // It takes the guest with it.
        run.args(["--pdeathsig", "TERM"])
            .arg(&site.run)
            .arg("--netns")
            .arg(&site.namespaces[0])
            .arg("--share")
            .arg(&shared);
        run.args(["--timeout", "7200", "--dmesg"]).arg(site.directory.join("dmesg"));
        if let Some(mtu) = &boot.mtu {
            run.args(["--mtu", mtu]);
        }
        if boot.no_offload {
            run.args(["--offload", "off"]);
        }
        run.arg(shell::root().join("interop/siw-matrix-guest.sh"));
        let process = Process(spawn(&mut run, &site.directory.join("console"))?);
        let mut guest = Self { site, boot: boot.clone(), process, link: None, shared, jobs: 0 };
        let deadline = Instant::now() + BOOT;
        while !guest.shared.join("kernel").exists() {
            if !guest.is_alive() || Instant::now() > deadline {
                bail!("the guest does not come up: {}", guest.console());
            }
            thread::sleep(LOOK);
        }
        if let Some(words) = &boot.link {
            guest.connect(words)?;
        }
        Ok(guest)
    }

    /// Gives our end a namespace of its own, with a bad link between it and the guest.
    fn connect(&mut self, words: &str) -> Result<()> {
        let [wire, ours] = &self.site.namespaces;
        let veth = ["link", "add", "iwarp0", "netns", wire, "type", "veth"];
        ip(&[&veth[..], &["peer", "name", "eth0", "netns", ours]].concat())?;
        for (address, length) in HERE.into_iter().zip(["/24", "/64"]) {
            let address = format!("{address}{length}");
            ip(&["-n", wire, "address", "del", &address, "dev", "br0"])?;
            ip(&["-n", ours, "address", "add", &address, "dev", "eth0", "nodad"])
                .or_else(|_| ip(&["-n", ours, "address", "add", &address, "dev", "eth0"]))?;
        }
        for (name, device) in [(wire, "iwarp0"), (ours, "eth0")] {
            ip(&["-n", name, "link", "set", device, "up"])?;
            // Packets on the wire must fit its frames, and have its checksums.
            let mut plain = Command::new("ip");
            plain.args(["netns", "exec", name, "ethtool", "-K", device]);
            plain.args(["tso", "off", "gso", "off", "gro", "off", "tx", "off", "sg", "off"]);
            ensure!(shell::succeeds(&mut plain), "ethtool fails");
        }
        let mut link = Command::new("ip");
        link.args(["netns", "exec", wire]).arg(self.site.directory.join("bin/rxe_link"));
        link.args(["iwarp0", "br0", "tcp=1"]).args(words.split_whitespace());
        let said = self.site.directory.join("link");
        self.link = Some(Process(spawn(&mut link, &said)?));
        let deadline = Instant::now() + PROMPT;
        while !read(&said).contains("passes") {
            ensure!(Instant::now() < deadline, "the link does not come up: {}", read(&said));
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The release of its kernel.
    pub(crate) fn kernel(&self) -> String {
        read(&self.shared.join("kernel")).trim().to_owned()
    }

    /// True while it runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.process.0.try_wait(), Ok(None))
    }

    /// The last that was seen of it.
    pub(crate) fn console(&self) -> String {
        shell::last_lines(&read(&self.site.directory.join("console")), 30)
    }

    /// Sets siw's parameters, those that are not named to what they are by default.
    pub(crate) fn set(&mut self, setting: &Setting) -> Result<()> {
        let mut text = "cd /sys/module/siw/parameters || exit 1\n".to_owned();
        let defaults = [
            ("mpa_version", "2"),
            ("mpa_crc_required", "0"),
            ("peer_to_peer", "0"),
            ("rtr_type", "49152"),
            ("try_gso", "0"),
        ];
        for (key, value) in defaults {
            let value = setting.siw.get(key).map_or(value, String::as_str);
            text.push_str(&format!("echo {value} >{key} || exit 1\n"));
        }
        self.ask(&text).map(|_| ())
    }

    /// Runs a short script, and returns its output.
    pub(crate) fn ask(&mut self, script: &str) -> Result<String> {
        let output = self.site.directory.join("asked");
        let mut job = self.start_there(script, 0, &output)?;
        let status = job.ends(Instant::now() + PROMPT);
        ensure!(status == Some(0), "the guest does not do it: {status:?}, {}", read(&output));
        Ok(read(&output))
    }

    /// Starts a script in the guest; what it says comes into `output` when it ends.
    pub(crate) fn start_there(
        &mut self,
        script: &str,
        port: u16,
        output: &Path,
    ) -> Result<Running> {
        self.jobs += 1;
        let job = self.shared.join(self.jobs.to_string());
        let new = job.with_extension("new");
        fs::write(&new, format!("# port {port}\n{script}\n"))?;
        fs::rename(&new, job.with_extension("sh"))?;
        Ok(Running::There { job, output: output.to_owned() })
    }

    /// Starts a command at this end, as an ordinary user.
    pub(crate) fn start_here(
        &self,
        text: &str,
        setting: &Setting,
        output: &Path,
    ) -> Result<Running> {
        let ours = &self.site.namespaces[usize::from(self.boot.link.is_some())];
        let mut command = Command::new("ip");
        command.args(["netns", "exec", ours, "setpriv"]).args(nobody::options());
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("LC_ALL", "C");
        command.env("IWARP_PERSONALITY", "iwarp").envs(&setting.environment);
        command.current_dir("/");
        let iwarp = self.site.directory.join("iwarp/bin/iwarp");
        let mut words = text.split_whitespace();
        match words.next().context("no command")? {
            "iwarp" => command.arg(iwarp),
            "siw_exchange" => command.arg(self.site.directory.join("bin/siw_exchange")),
            program => {
                let personality = setting.environment.get("IWARP_PERSONALITY");
                command.arg(iwarp).args(["run", "--personality"]);
                command.arg(personality.map_or("iwarp", String::as_str)).args(["--", program])
            }
        };
        command.args(words);
        Ok(Running::Here(Process(spawn(&mut command, output)?)))
    }

    /// Captures the guest's link from now on.
    pub(crate) fn capture(&self, file: &Path) -> Result<Process> {
        let mut tcpdump = Command::new("ip");
        tcpdump.args(["netns", "exec", &self.site.namespaces[0], "tcpdump", "--immediate-mode"]);
        tcpdump.args(["-i", "guest", "-U", "-s", "0", "-B", "65536", "-Z", "root", "-w"]).arg(file);
        let said = self.site.directory.join("tcpdump");
        let process = Process(spawn(&mut tcpdump, &said)?);
        let deadline = Instant::now() + PROMPT;
        while !read(&said).contains("listening on") {
            ensure!(Instant::now() < deadline, "tcpdump does not listen: {}", read(&said));
            thread::sleep(LOOK);
        }
        Ok(process)
    }

    /// Bytes that have passed the link.
    pub(crate) fn traffic(&self) -> Result<u64> {
        let mut show = Command::new("ip");
        show.args(["-n", &self.site.namespaces[0], "-j", "-s", "link", "show", "guest"]);
        let table: Value = serde_json::from_str(&shell::output(&mut show)?)?;
        let of = |way: &str| table[0]["stats64"][way]["bytes"].as_u64();
        Ok(of("rx").context("no count")? + of("tx").context("no count")?)
    }

    /// Cuts the link: no packet passes any more.
    pub(crate) fn cut(&self) -> Result<()> {
        ip(&["-n", &self.site.namespaces[0], "link", "set", "guest", "nomaster"])
    }

    /// The complaints of its kernel.
    pub(crate) fn complaints(&mut self) -> String {
        let script =
            "dmesg | grep -E 'BUG|Oops|WARNING:|use-after-free|refcount' | head -n 3; true";
        self.ask(script).unwrap_or_default().trim().to_owned()
    }

    /// Keeps what there is to know of it.
    pub(crate) fn keep(&mut self, directory: &Path) {
        if let Ok(text) = self.ask("dmesg") {
            let _ = fs::write(directory.join("dmesg"), text);
        }
        let _ = fs::copy(self.site.directory.join("console"), directory.join("console"));
        let _ = fs::copy(self.site.directory.join("link"), directory.join("link"));
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let _ = File::create(self.shared.join("over"));
        let _ = self.process.ends(Instant::now() + PROMPT);
        if let Some(run) = Pid::from_raw(self.process.0.id().cast_signed())
            && self.is_alive()
        {
            // It ends the guest and removes its own files.
            let _ = kill_process(run, Signal::TERM);
            let _ = self.process.ends(Instant::now() + PROMPT);
        }
        self.site.remove_namespaces();
    }
}

/// A command at one of the ends.
pub(crate) enum Running {
    Here(Process),
    There { job: PathBuf, output: PathBuf },
}

impl Running {
    /// Waits until it listens.
    pub(crate) fn listens(&mut self, port: u16, deadline: Instant) -> Result<()> {
        let job = match self {
            Self::Here(process) => return process.listens(port, deadline),
            Self::There { job, .. } => job,
        };
        while !job.with_extension("ready").exists() {
            ensure!(!job.with_extension("status").exists(), "the server ends before it listens");
            ensure!(Instant::now() < deadline, "the server does not listen at port {port}");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until it ends, but not past the deadline; its status.
    pub(crate) fn ends(&mut self, deadline: Instant) -> Option<i32> {
        let (job, output) = match self {
            Self::Here(process) => {
                return process.ends(deadline).map(|status| status.code().unwrap_or(-1));
            }
            Self::There { job, output } => (job, output),
        };
        loop {
            let _ = fs::copy(job.with_extension("out"), &*output);
            if let Ok(text) = fs::read_to_string(job.with_extension("status")) {
                let _ = fs::copy(job.with_extension("out"), &*output);
                return text.trim().parse().ok();
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(LOOK);
        }
    }

    /// Kills it; false where it does not die.
    pub(crate) fn kill(mut self) -> bool {
        if let Self::There { job, .. } = &self {
            let _ = File::create(job.with_extension("stop"));
            return self.ends(Instant::now() + PROMPT).is_some();
        }
        true
    }
}

/// Starts it with what it says going into a file, in a process group of its own.
fn spawn(command: &mut Command, output: &Path) -> Result<std::process::Child> {
    let file = File::create(output).with_context(|| format!("{}", output.display()))?;
    let both = file.try_clone()?;
    command.stdin(Stdio::null()).stdout(file).stderr(both).process_group(0);
    command.spawn().with_context(|| format!("cannot start {command:?}"))
}

/// The text of a file, or nothing where there is none.
pub(crate) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
