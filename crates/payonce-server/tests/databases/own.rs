//! A server of a test's own, in a folder of its own, which may be badly configured or killed.
//!
//! Here: making, starting and killing it. Its programs are those of the server that `cargo xtask services` started;
//! it tells where they are. Not here: what is tested.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    Connection, Database, Kind, free_port,
    servers::{url, with_database},
};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct OwnServer {
    kind: Kind,
    programs: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
    settings: Vec<String>,
    child: Option<Child>,
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl OwnServer {
    /// A new one with an empty database `books`, started. Settings as `--name=value`, after the durable ones.
    pub(crate) async fn start_new(kind: Kind, settings: &[&str]) -> Self {
        Self::start_on(kind, free_port(), settings).await
    }

    pub(crate) async fn start_on(kind: Kind, port: u16, settings: &[&str]) -> Self {
        let mut shared = Connection::open(&url(kind.variable().unwrap())).await;
        let programs = match kind {
            Kind::Mariadb => "/usr".to_owned(),
            _ => shared.text("SELECT setting FROM pg_config WHERE name = 'BINDIR'").await.unwrap(),
        };
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let dir = tempfile::tempdir().unwrap();
        let mut server = Self { kind, programs: programs.into(), dir, port, settings, child: None };
        Self::give(server.dir.path());
        server.create();
        server.start().await;
        Connection::open(&server.admin_url()).await.run("CREATE DATABASE books").await;
        server
    }

    /// Lets the server have this folder: only whom it belongs to may read a private key.
    pub(crate) fn give(folder: &Path) {
        if is_root() {
            let mut chown = Command::new("chown");
            assert!(chown.args(["-R", "nobody:nogroup"]).arg(folder).status().unwrap().success());
        }
        let keys = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for key in keys.filter(|path| path.extension().is_some_and(|extension| extension == "key")) {
            fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    pub(crate) fn database(&self) -> Database {
        Database { kind: self.kind, url: with_database(&self.admin_url(), "books") }
    }

    pub(crate) fn admin_url(&self) -> String {
        match self.kind {
            Kind::Mariadb => format!("mysql://root@127.0.0.1:{}", self.port),
            _ => format!("postgres://postgres@127.0.0.1:{}/postgres", self.port),
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// A program of the server. Servers refuse to be root; this one ends with the test, however that ends.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig=KILL", "--"]);
                command.arg(program);
                command
            }
            false => Command::new(program),
        };
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    fn create(&self) {
        let mut command = match self.kind {
            Kind::Mariadb => {
                let mut install = self.program("bin/mariadb-install-db");
                install.arg("--no-defaults").arg(format!("--datadir={}", self.data().display()));
                install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
                install
            }
            _ => {
                let mut initdb = self.program("initdb");
                initdb.arg("--pgdata").arg(self.data());
                initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
                initdb
            }
        };
        assert!(command.status().unwrap().success(), "{}", self.log());
    }

    fn serve(&self) -> Command {
        let mut command = match self.kind {
            Kind::Mariadb => {
                let mut mariadbd = self.program("sbin/mariadbd");
                mariadbd.arg("--no-defaults").arg(format!("--datadir={}", self.data().display()));
                mariadbd.args(["--bind-address=127.0.0.1", "--socket=", "--skip-log-bin", "--skip-name-resolve"]);
                mariadbd.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=32M"]);
                mariadbd
            }
            _ => {
                let mut postgres = self.program("postgres");
                postgres.arg("-D").arg(self.data());
                postgres.args(["--listen-addresses=127.0.0.1", "--unix-socket-directories=", "--shared-buffers=16MB"]);
                postgres.args(["--fsync=on", "--synchronous-commit=on", "--full-page-writes=on"]);
                postgres
            }
        };
        command.arg(format!("--port={}", self.port)).args(&self.settings);
        command
    }

    /// Starts it, and waits until it lets somebody in. What was killed may leave memory behind that the system has not
    /// taken back yet; then it ends at once and is started again.
    pub(crate) async fn start(&mut self) {
        let until = Instant::now() + PATIENCE;
        let mut child = self.serve().spawn().unwrap();
        while Connection::try_open(&self.admin_url()).await.is_err() {
            assert!(Instant::now() < until, "the server does not start\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
            if child.try_wait().unwrap().is_some() {
                child = self.serve().spawn().unwrap();
            }
        }
        self.child = Some(child);
    }

    /// `kill -9` of the server and of all processes that it made, at one moment.
    pub(crate) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let mut all = vec![child.id().to_string()];
        all.extend(children_of(child.id()));
        // Some may have ended by themselves.
        let _ = Command::new("kill").arg("-9").args(&all).stderr(Stdio::null()).status();
        child.wait().unwrap();
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// Processes whose parent this is: the fourth field of `/proc/PID/stat`, behind the name in brackets.
fn children_of(parent: u32) -> Vec<String> {
    let is_child = |pid: &String| {
        let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        fields.split(' ').nth(1) == Some(&parent.to_string())
    };
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(is_child).collect()
}
