//! Other people's payment software, to talk with in the interop tests.
//!
//! Here: which packages in which versions, and what the machine needs for them. Not here: what they are
//! asked (`crates/payonce-channels/tests/peers/`). Install scripts of npm packages are not run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::shell::{self, Outcome};

const NPM: [&str; 3] = ["wechatpay-axios-plugin@0.9.6", "alipay-sdk@4.14.0", "standardwebhooks@1.1.1"];

/// `cryptography` comes with `wechatpayv3`; it is named because a script uses it, and fixed because a new
/// major would be another test.
const PYPI: [&str; 4] =
    ["wechatpayv3==2.0.4", "alipay-sdk-python==3.7.1411", "standardwebhooks==1.1.0", "cryptography==50.0.2"];

/// What the machine itself has to bring: how to see whether it is there, and its Debian packages.
const NEEDS: [(&str, &[&str], &[&str]); 3] = [
    ("Node.js 18 or newer", &["node", "-e", "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)"], &["nodejs"]),
    ("npm", &["npm", "--version"], &["npm"]),
    (
        "Python 3.8 or newer with venv",
        &["python3", "-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 8))"],
        &["python3", "python3-venv"],
    ),
];

/// Installs what is not there yet, and gives the folder.
pub(crate) fn install() -> Outcome<PathBuf> {
    let folder = shell::peers_folder();
    if is_installed(&folder) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    machine_needs()?;
    shell::step("npm: wechatpay-axios-plugin, alipay-sdk, standardwebhooks", || npm(&folder))?;
    shell::step("pip: wechatpayv3, alipay-sdk-python, standardwebhooks", || pip(&folder))?;
    fs::write(stamp_file(&folder), stamp()).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Whether exactly these versions are there.
pub(crate) fn is_installed(folder: &Path) -> bool {
    fs::read_to_string(stamp_file(folder)).is_ok_and(|have| have == stamp())
}

/// Written last, so that an installation that broke off is done again.
fn stamp_file(folder: &Path) -> PathBuf {
    folder.join("installed.txt")
}

fn stamp() -> String {
    [NPM.join("\n"), PYPI.join("\n")].join("\n") + "\n"
}

fn npm(folder: &Path) -> Outcome<()> {
    // Without a manifest of its own, npm looks for one in the folders above.
    fs::write(folder.join("package.json"), "{ \"private\": true }\n").map_err(|error| error.to_string())?;
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
    shell::run(Command::new("npm").current_dir(folder).arg("install").args(quiet).args(NPM))
}

fn pip(folder: &Path) -> Outcome<()> {
    let venv = folder.join("venv");
    shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let quiet = ["install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"];
    shell::run(Command::new(venv.join("bin").join("pip")).args(quiet).args(PYPI))
}

fn machine_needs() -> Outcome<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let packages: Vec<&str> = missing.iter().flat_map(|(_, packages)| packages.iter().copied()).collect();
    let by_hand = format!("on Debian: apt-get install --no-install-recommends {}", packages.join(" "));
    if !is_root_on_debian() {
        return Err(format!("the interop tests need {names}; install it and run this again ({by_hand})"));
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
    match self::missing().first() {
        None => Ok(()),
        Some((name, _)) => Err(format!("{name} is still missing after apt-get; install it by hand ({by_hand})")),
    }
}

fn missing() -> Vec<(&'static str, &'static [&'static str])> {
    let is_there = |words: &[&str]| shell::read(Command::new(words[0]).args(&words[1..])).is_ok();
    NEEDS.into_iter().filter(|(_, check, _)| !is_there(check)).map(|(name, _, packages)| (name, packages)).collect()
}

fn is_root_on_debian() -> bool {
    let is_root = shell::read(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    is_root && Path::new("/etc/debian_version").exists()
}
