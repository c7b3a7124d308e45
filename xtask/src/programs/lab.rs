// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lab in which programs run: pairs of hosts that are network namespaces, and a directory for
//! each pair.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::process::LOOK;
use super::table::{Personality, Row, Topology};
use crate::dist::{self, Build};
use crate::{nobody, shell};

/// A link is up by then.
const LINK: Duration = Duration::from_secs(20);

/// An installation, and hosts to use it on. All of it goes when this goes.
pub(crate) struct Lab {
    directory: PathBuf,
    pub(crate) lanes: Vec<Lane>,
}

/// Two hosts with a network of MTU 1500 between them. Programs in one lane know nothing of the
/// others: ports never collide.
pub(crate) struct Lane {
    hosts: [Host; 2],
    prefix: PathBuf,
    directory: PathBuf,
}

struct Host {
    namespace: String,
    address: String,
}

impl Host {
    /// Waits until `eth0` is up, which is some time after both of its ends were set so.
    fn await_link(&self) -> Result<()> {
        let look = ["-n", &self.namespace, "-oneline", "link", "show", "dev", "eth0"];
        let deadline = Instant::now() + LINK;
        while !shell::output(shell::program("ip").args(look))?.contains("state UP") {
            if Instant::now() > deadline {
                bail!("the link of {} is not up within {LINK:?}", self.namespace);
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// One of a lane's two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Lab {
    /// Installs what was built into a directory that everybody can read, makes the hosts and
    /// connects those of each lane.
    pub(crate) fn new(build: Build, lanes: usize) -> Result<Self> {
        let lab = Self::unconnected(build, lanes)?;
        lab.lanes.iter().try_for_each(Lane::connect)?;
        Ok(lab)
    }

    /// A lab whose hosts have no network yet.
    pub(crate) fn unconnected(build: Build, lanes: usize) -> Result<Self> {
        if !geteuid().is_root() {
            bail!(
                "only root makes network namespaces; as an ordinary user, be root in a namespace: \
                 unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run && cargo xtask programs'"
            );
        }
        remove_leftovers();
        let directory = std::env::temp_dir().join(format!("iwarp-lab-{}", std::process::id()));
        let mut lab = Self { directory, lanes: Vec::new() };
        open_directory(&lab.directory)?;
        let prefix = lab.directory.join("iwarp");
        dist::stage(&prefix, build)?;
        open_directory(&lab.directory.join("bin"))?;
        for number in 0..lanes {
            let directory = lab.directory.join(format!("lane{number}"));
            open_directory(&directory)?;
            nobody::give(&directory)?;
            let hosts = ["a", "b"].map(|host| Host {
                namespace: format!("iwarp-{}-{number}{host}", std::process::id()),
                address: format!("10.77.{number}.{}", if host == "a" { 1 } else { 2 }),
            });
            // Into the list first, so that it is removed in any case.
            lab.lanes.push(Lane { hosts, prefix: prefix.clone(), directory });
            lab.lanes[number].make_hosts()?;
        }
        Ok(lab)
    }

    /// Does each job in a lane that is free; returns what came of each, and what is wrong.
    pub(crate) fn each<J: Send, K: Ord + Send, V: Send, P: Send>(
        &self,
        jobs: Vec<J>,
        attempt: impl Fn(&Lane, J) -> (K, V, Option<P>) + Sync,
    ) -> (BTreeMap<K, V>, Vec<P>) {
        let queue = Mutex::new(VecDeque::from(jobs));
        let next = || queue.lock().expect("not poisoned").pop_front();
        let results = Mutex::new((BTreeMap::new(), Vec::new()));
        thread::scope(|scope| {
            for lane in &self.lanes {
                scope.spawn(|| {
                    while let Some(job) = next() {
                        let (key, value, problem) = attempt(lane, job);
                        let mut results = results.lock().expect("not poisoned");
                        results.0.insert(key, value);
                        results.1.extend(problem);
                    }
                });
            }
        });
        results.into_inner().expect("not poisoned")
    }

    /// The directory for programs that are compiled for the tests.
    pub(crate) fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in self.lanes.iter().flat_map(|lane| &lane.hosts) {
            kill_all_in(&host.namespace);
            ip_quietly(&["netns", "del", &host.namespace]);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Lane {
    fn make_hosts(&self) -> Result<()> {
        for host in &self.hosts {
            ip(&["netns", "add", &host.namespace])?;
            ip(&["-n", &host.namespace, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<()> {
        let [a, b] = &self.hosts;
        ip(&[
            "link",
            "add",
            "eth0",
            "netns",
            &a.namespace,
            "mtu",
            "1500",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            &b.namespace,
            "mtu",
            "1500",
        ])?;
        self.bring_up()?;
        // Some programs take no interface that is not up.
        self.hosts.iter().try_for_each(Host::await_link)
    }

    /// Gives the hosts' `eth0` their addresses.
    pub(crate) fn bring_up(&self) -> Result<()> {
        for host in &self.hosts {
            let address = format!("{}/24", host.address);
            ip(&["-n", &host.namespace, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &host.namespace, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    /// The names of the hosts' network namespaces.
    pub(crate) fn namespaces(&self) -> [&str; 2] {
        self.hosts.each_ref().map(|host| &*host.namespace)
    }

    /// The server's host is not heard of any more.
    pub(crate) fn unplug(&self) -> Result<()> {
        self.set_link("down")
    }

    /// It is back.
    pub(crate) fn plug(&self) -> Result<()> {
        self.set_link("up")
    }

    fn set_link(&self, state: &str) -> Result<()> {
        let [server, _] = &self.hosts;
        ip(&["-n", &server.namespace, "link", "set", "eth0", state])
    }

    /// Ends all that still runs on the hosts: some programs detach themselves.
    pub(crate) fn sweep(&self) {
        for host in &self.hosts {
            kill_all_in(&host.namespace);
        }
    }

    /// The directory of this lane's files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The address that stands for `SERVER` or `CLIENT`.
    pub(crate) fn address(&self, side: Side, topology: Topology) -> &str {
        match topology {
            Topology::Loopback => "127.0.0.1",
            Topology::Network => &self.hosts[side as usize].address,
        }
    }

    /// Starts a command of a row under `iwarp run`, as an ordinary user and in a process group of
    /// its own; what it says goes into `output`.
    pub(crate) fn start(
        &self,
        row: &Row,
        topology: Topology,
        side: Side,
        output: &Path,
    ) -> Result<Child> {
        let text = match side {
            Side::Server => &row.server,
            Side::Client => &row.client,
        };
        let host = match topology {
            Topology::Loopback => Side::Server,
            Topology::Network => side,
        };
        let mut command = self.command(host);
        if row.two_ports {
            let kind = row.personality_of(side).name();
            command.env("IWARP_DEVICES", format!("{kind}0=lo+eth0:{kind}"));
        }
        self.run_with(&mut command, row.personality_of(side), &row.options(), topology, text);
        self.spawn(&mut command, output).with_context(|| format!("cannot start {text}"))
    }

    /// Adds `iwarp run` and `text`, with the addresses that words of it stand for, to a command.
    pub(crate) fn run_with(
        &self,
        command: &mut Command,
        personality: Personality,
        options: &[&str],
        topology: Topology,
        text: &str,
    ) {
        command.arg(self.prefix.join("bin/iwarp")).args(["run", "--personality"]);
        command.arg(personality.name()).args(options);
        let (server, client) =
            (self.address(Side::Server, topology), self.address(Side::Client, topology));
        command.arg("--").args(text.split_whitespace().map(|word| match word {
            "SERVER" => server.to_owned(),
            "CLIENT" => client.to_owned(),
            // fio: --hostname=SERVER
            _ => word.replace("=SERVER", &format!("={server}")),
        }));
    }

    /// A command on a host, which still lacks the program; it dies with this process.
    pub(crate) fn command(&self, host: Side) -> Command {
        let namespace = &self.hosts[host as usize].namespace;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "setpriv"]).args(nobody::options());
        let bin = self.directory.with_file_name("bin");
        command.env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", bin.display()));
        command.env("LC_ALL", "C").env("HOME", &self.directory).env("TMPDIR", &self.directory);
        command.current_dir(&self.directory);
        command
    }

    /// The installed command.
    pub(crate) fn iwarp(&self) -> PathBuf {
        self.prefix.join("bin/iwarp")
    }

    /// Starts it with what it says going into a file.
    pub(crate) fn spawn(&self, command: &mut Command, output: &Path) -> Result<Child> {
        let file = File::create(output).with_context(|| format!("{}", output.display()))?;
        let both = file.try_clone()?;
        let command = command.stdin(Stdio::null()).stdout(file).stderr(both);
        Ok(command.process_group(0).spawn()?)
    }
}

/// A directory that everybody may look into.
pub(crate) fn open_directory(path: &Path) -> Result<()> {
    fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    Ok(())
}

pub(crate) fn ip(arguments: &[&str]) -> Result<()> {
    shell::output(shell::program("ip").args(arguments))
        .with_context(|| format!("ip {}", arguments.join(" ")))
        .map(|_| ())
}

pub(crate) fn ip_quietly(arguments: &[&str]) {
    let _ = shell::succeeds(shell::program("ip").args(arguments));
}

/// A namespace is made for the programs of a run, so nothing else is in it. They are gone when this
/// returns, and their sockets with them.
pub(crate) fn kill_all_in(namespace: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let list = shell::output(shell::program("ip").args(["netns", "pids", namespace]));
        let list = list.unwrap_or_default();
        if list.trim().is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in list.lines().filter_map(|pid| Pid::from_raw(pid.trim().parse().ok()?)) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(LOOK);
    }
}

/// Removes the leavings of a run that was killed.
pub(crate) fn remove_leftovers() {
    let gone = |name: &str, prefix: &str| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        let pid = rest.split('-').next().unwrap_or_default();
        !pid.is_empty() && !Path::new("/proc").join(pid).exists()
    };
    let list = shell::output(shell::program("ip").args(["netns", "list"])).unwrap_or_default();
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        if gone(name, "iwarp-") {
            kill_all_in(name);
            ip_quietly(&["netns", "del", name]);
        }
    }
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if gone(&entry.file_name().to_string_lossy(), "iwarp-lab-") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
