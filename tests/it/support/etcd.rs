//! Real etcd: one member or a cluster of three, in a temporary directory.

use std::{
    fs,
    io::Write,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use doorman_server::etcd::{EtcdClient, EtcdSettings, EtcdUser};
use serde_json::Value;
use tempfile::TempDir;

use super::{Authority, Process, until};

/// Members that have been started, some of which may be killed or paused.
#[derive(Debug)]
pub(crate) struct Etcd {
    members: Vec<Member>,
    home: TempDir,
    user: Option<(String, String)>,
    /// Whether endpoints use TLS and require client certificates.
    encrypted: bool,
    /// The most bytes of a member's store, as a flag; empty: etcd's default.
    quota: String,
}

#[derive(Debug)]
struct Member {
    process: Option<Process>,
    endpoint: String,
    peer: String,
    data: PathBuf,
}

impl Etcd {
    /// Starts one member.
    pub(crate) fn start() -> Self {
        Self::start_members(1, None, "")
    }

    /// Starts one member that soon has no space for writes.
    pub(crate) fn start_with_little_space() -> Self {
        Self::start_members(1, None, "400000")
    }

    /// Starts a cluster of three, which elects a leader within 0.3 to 0.6 s.
    pub(crate) fn start_cluster() -> Self {
        Self::start_members(3, None, "")
    }

    /// Starts one member with TLS that requires client certificates of the authority.
    pub(crate) fn start_encrypted(authority: &Authority) -> Self {
        Self::start_members(1, Some(authority), "")
    }

    fn start_members(count: u8, authority: Option<&Authority>, quota: &str) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        // A random loopback address has the usual ports free.
        let [b, c, d] = [(); 3].map(|()| fastrand::u8(1..250));
        let scheme = if authority.is_some() { "https" } else { "http" };
        let members = (0..count).map(|n| {
            let address = Ipv4Addr::new(127, b, c, d.wrapping_add(n));
            Member {
                process: None,
                endpoint: format!("{scheme}://{address}:2379"),
                peer: format!("http://{address}:2380"),
                data: home.path().join(format!("member{n}")),
            }
        });
        let members: Vec<_> = members.collect();
        let mut etcd = Self {
            members,
            home,
            user: None,
            encrypted: authority.is_some(),
            quota: quota.to_owned(),
        };
        if let Some(authority) = authority {
            etcd.issue_certificates(authority);
        }
        etcd.restart_all();
        etcd
    }

    /// Replaces all certificates by those of an authority; members use them after a restart.
    pub(crate) fn issue_certificates(&self, authority: &Authority) {
        let endpoint = self.endpoint(0).trim_start_matches("https://");
        let host = endpoint.trim_end_matches(":2379");
        authority.issue_for(self.home.path(), "etcd", host);
        fs::write(self.file("ca.pem"), authority.pem()).expect("it is writable");
    }

    /// Starts a member that was killed, with its data.
    pub(crate) fn restart(&mut self, member: usize) {
        self.launch(member);
        self.wait_until_healthy(member);
    }

    /// Starts all members that were killed, with their data.
    pub(crate) fn restart_all(&mut self) {
        for member in 0..self.members.len() {
            if self.members[member].process.is_none() {
                self.launch(member);
            }
        }
        for member in 0..self.members.len() {
            self.wait_until_healthy(member);
        }
    }

    /// Sends SIGKILL to all members, and starts a new cluster without data at their addresses.
    pub(crate) fn rebuild(&mut self) {
        self.kill_all();
        for member in &self.members {
            fs::remove_dir_all(&member.data).expect("it has started");
        }
        self.user = None;
        self.restart_all();
    }

    fn launch(&mut self, member: usize) {
        let names: Vec<_> = (0..self.members.len())
            .map(|n| format!("member{n}"))
            .collect();
        let peers = names.iter().zip(&self.members);
        let peers: Vec<_> = peers
            .map(|(name, it)| format!("{name}={}", it.peer))
            .collect();
        let peers = peers.join(",");
        let [certificate, key, ca] = ["etcd.crt", "etcd.key", "ca.pem"].map(|it| self.file(it));
        let Member {
            process,
            endpoint,
            peer,
            data,
        } = &mut self.members[member];
        let data = data.display().to_string();
        let mut args = vec![
            "--name",
            &names[member],
            "--data-dir",
            &data,
            "--listen-client-urls",
            endpoint,
            "--advertise-client-urls",
            endpoint,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            &peers,
            "--heartbeat-interval",
            "50",
            "--election-timeout",
            "300",
        ];
        if !self.quota.is_empty() {
            args.extend(["--quota-backend-bytes", &self.quota]);
        }
        if self.encrypted {
            args.extend(["--cert-file", &certificate, "--key-file", &key]);
            args.extend(["--client-cert-auth", "--trusted-ca-file", &ca]);
        }
        *process = Some(Process::start(Path::new("etcd"), &args));
    }

    fn wait_until_healthy(&self, member: usize) {
        let url = format!("{}/health", self.members[member].endpoint);
        until("etcd is healthy", || {
            let mut curl = Command::new("curl");
            curl.args(["-s", "--max-time", "1", &url]);
            if self.encrypted {
                let [certificate, key, ca] =
                    ["etcd.crt", "etcd.key", "ca.pem"].map(|it| self.file(it));
                curl.args(["--cert", &certificate, "--key", &key, "--cacert", &ca]);
            }
            let output = curl.output().expect("curl is installed");
            String::from_utf8_lossy(&output.stdout).contains("\"true\"")
        });
    }

    /// Sends SIGKILL to a member.
    pub(crate) fn kill(&mut self, member: usize) {
        let process = self.members[member].process.take();
        process.expect("it runs").kill();
    }

    /// Sends SIGKILL to all members.
    pub(crate) fn kill_all(&mut self) {
        for process in self.members.iter_mut().filter_map(|it| it.process.take()) {
            process.kill();
        }
    }

    /// Suspends a member: its connections stay open, and nothing answers.
    pub(crate) fn pause(&self, member: usize) {
        let process = self.members[member].process.as_ref();
        process.expect("it runs").pause();
    }

    /// Resumes a member.
    pub(crate) fn resume(&self, member: usize) {
        let process = self.members[member].process.as_ref();
        process.expect("it runs").resume();
    }

    /// The member that leads the cluster.
    pub(crate) fn leader(&self) -> usize {
        let status = self.ctl(&["endpoint", "status", "--write-out", "json"]);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let all = status.as_array().expect("a list");
        let leads = |it: &&Value| it["Status"]["leader"] == it["Status"]["header"]["member_id"];
        let leader = all.iter().find(leads).expect("a leader");
        let is_it = |it: &Member| leader["Endpoint"] == it.endpoint;
        self.members.iter().position(is_it).expect("a member")
    }

    /// Enables authentication with a user that may do everything.
    pub(crate) fn enable_authentication(&mut self, name: &str, password: &str) {
        self.ctl(&["user", "add", &format!("root:{password}")]);
        self.ctl(&["user", "grant-role", "root", "root"]);
        self.ctl(&["user", "add", &format!("{name}:{password}")]);
        self.ctl(&["user", "grant-role", name, "root"]);
        self.ctl(&["auth", "enable"]);
        fs::write(self.file("password"), format!("{password}\n")).expect("it is writable");
        self.user = Some((name.to_owned(), password.to_owned()));
    }

    /// Changes the password of a user, which invalidates its tokens.
    pub(crate) fn set_password(&self, name: &str, password: &str) {
        let args = ["user", "passwd", name, "--interactive=false"];
        self.ctl_with(&args, &format!("{password}\n"));
    }

    /// Writes until it has no space.
    pub(crate) fn fill(&self) {
        let ballast = "x".repeat(40_000);
        loop {
            let output = self.run_ctl(&["put", "ballast"], &ballast);
            let errors = String::from_utf8_lossy(&output.stderr);
            if errors.contains("database space exceeded") {
                return;
            }
            assert!(output.status.success(), "{errors}");
        }
    }

    /// Gives it space again, as the guide says.
    pub(crate) fn free(&self) {
        let status = self.ctl(&["endpoint", "status", "--write-out", "json"]);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let revision = &status[0]["Status"]["header"]["revision"];
        self.ctl(&["compact", &revision.to_string()]);
        self.ctl(&["defrag"]);
        self.ctl(&["alarm", "disarm"]);
    }

    /// Calls etcdctl, and returns its output.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        self.ctl_with(args, "")
    }

    fn ctl_with(&self, args: &[&str], input: &str) -> String {
        let output = self.run_ctl(args, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn run_ctl(&self, args: &[&str], input: &str) -> Output {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.env("ETCDCTL_API", "3");
        etcdctl.args(["--endpoints", &self.endpoints()]).args(args);
        if let Some((_, password)) = &self.user {
            etcdctl.args(["--user", &format!("root:{password}")]);
        }
        etcdctl.stdin(Stdio::piped());
        etcdctl.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = etcdctl.spawn().expect("etcdctl is installed");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input.as_bytes()).expect("it runs");
        drop(stdin);
        child.wait_with_output().expect("it runs")
    }

    /// The URL of a member.
    pub(crate) fn endpoint(&self, member: usize) -> &str {
        &self.members[member].endpoint
    }

    /// The URLs of all members, as the flag `--etcd-endpoints` takes them.
    pub(crate) fn endpoints(&self) -> String {
        let all: Vec<_> = self.members.iter().map(|it| &*it.endpoint).collect();
        all.join(",")
    }

    /// A path in its directory: `password`, `ca.pem`, `etcd.crt` and `etcd.key`.
    pub(crate) fn file(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    /// Settings of a client.
    pub(crate) fn settings(&self) -> EtcdSettings {
        let endpoints = self.members.iter();
        EtcdSettings {
            endpoints: (endpoints.map(|it| it.endpoint.parse().expect("a URL"))).collect(),
            user: self.user.as_ref().map(|(name, _)| EtcdUser {
                name: name.clone(),
                password_file: self.file("password").into(),
            }),
            ca_file: self.encrypted.then(|| self.file("ca.pem").into()),
            certificate: (self.encrypted)
                .then(|| (self.file("etcd.crt").into(), self.file("etcd.key").into())),
        }
    }

    /// A client.
    pub(crate) fn client(&self) -> EtcdClient {
        EtcdClient::new(&self.settings()).expect("valid settings")
    }
}
