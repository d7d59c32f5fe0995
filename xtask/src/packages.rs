//! Other people's packages from npm and PyPI, in fixed versions, in a folder of their own; and nginx, from Debian.
//!
//! Here: installing a list unless exactly it is there already, and what the machine needs for that. Not here: which
//! packages, and what they are for (`peers`, `bench`, `gateways`). Install scripts of npm packages are not run.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::shell::{self, Outcome};

/// What the machine itself has to bring: how to see whether it is there, and its Debian packages.
type Need = (String, Vec<String>, &'static [&'static str]);

/// Installs npm packages into `folder/node_modules`, for Node.js of at least this version.
pub(crate) fn npm(folder: &Path, packages: &[&str], node: u32) -> Outcome<()> {
    let check = format!("process.exit(parseInt(process.versions.node) < {node} ? 1 : 0)");
    let needs: [Need; 2] = [
        (format!("Node.js {node} or newer"), ["node", "-e", &check].map(str::to_owned).into(), &["nodejs"]),
        ("npm".to_owned(), ["npm", "--version"].map(str::to_owned).into(), &["npm"]),
    ];
    unless_there(folder, "npm", packages, &needs, || {
        // Without a manifest of its own, npm looks for one in the folders above.
        fs::write(folder.join("package.json"), "{ \"private\": true }\n").map_err(|error| error.to_string())?;
        let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
        shell::run(Command::new("npm").current_dir(folder).arg("install").args(quiet).args(packages))
    })
}

/// Installs packages of PyPI into `folder/venv`.
pub(crate) fn pypi(folder: &Path, packages: &[&str]) -> Outcome<()> {
    let check = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 8))";
    let needs: [Need; 1] = [(
        "Python 3.8 or newer with venv".to_owned(),
        ["python3", "-c", check].map(str::to_owned).into(),
        &["python3", "python3-venv"],
    )];
    unless_there(folder, "pypi", packages, &needs, || {
        let venv = folder.join("venv");
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let quiet = ["install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"];
        shell::run(Command::new(venv.join("bin").join("pip")).args(quiet).args(packages))
    })
}

/// The balancer in front of several gateways.
pub(crate) fn nginx() -> Outcome<()> {
    machine_needs(&[("nginx".to_owned(), ["/usr/sbin/nginx", "-v"].map(str::to_owned).into(), &["nginx-light"])])
}

/// The list is written last, so that an installation that broke off is done again.
fn unless_there(
    folder: &Path,
    registry: &str,
    packages: &[&str],
    needs: &[Need],
    install: impl FnOnce() -> Outcome<()>,
) -> Outcome<()> {
    let (stamp, want) = (folder.join(format!("{registry}.txt")), packages.join("\n") + "\n");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == want) {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    machine_needs(needs)?;
    shell::step(&format!("{registry}: {}", packages.join(", ")), install)?;
    fs::write(&stamp, want).map_err(|error| format!("{}: {error}", stamp.display()))
}

fn machine_needs(needs: &[Need]) -> Outcome<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>().join(", ");
    let packages: Vec<&str> = missing.iter().flat_map(|(.., packages)| packages.iter().copied()).collect();
    let by_hand = format!("on Debian: apt-get install --no-install-recommends {}", packages.join(" "));
    if !is_root_on_debian() {
        return Err(format!("{names} is needed; install it and run this again ({by_hand})"));
    }
    shell::step(&format!("apt-get: {}", packages.join(" ")), || {
        let apt = || {
            let mut command = Command::new("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive").args(["-qq", "-o=Dpkg::Use-Pty=0"]);
            command
        };
        shell::run(apt().arg("update"))?;
        shell::run(apt().args(["install", "--yes", "--no-install-recommends"]).args(&packages).stdout(Stdio::null()))
    })?;
    match self::missing(needs).first() {
        None => Ok(()),
        Some((name, ..)) => Err(format!("{name} is still missing after apt-get; install it by hand ({by_hand})")),
    }
}

fn missing(needs: &[Need]) -> Vec<&Need> {
    let is_there = |words: &[String]| shell::read(Command::new(&words[0]).args(&words[1..])).is_ok();
    needs.iter().filter(|(_, check, _)| !is_there(check)).collect()
}

fn is_root_on_debian() -> bool {
    let is_root = shell::read(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    is_root && Path::new("/etc/debian_version").exists()
}
