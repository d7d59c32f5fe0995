//! `payonce init`: a configuration to begin with, and a folder for keys.
//!
//! Here: the files that are written, and the next steps. Not here: what a setting means (`config`), whether
//! the result is right (`doctor`). It asks nothing and never replaces a secret.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;

use super::{
    out::{self, Failure},
    random_bytes, write_private,
};
use crate::config::{MANUAL, reason};

const EXAMPLES: &str = "\
Examples:
  payonce init
  payonce init --dir /etc/payonce
  payonce init --manual | less        every setting, with its default";

/// Write a commented payonce.toml and a folder `secrets` with an admin token and a webhook secret
///
/// Asks nothing, and says what to do next. An existing payonce.toml is left alone unless --force is given;
/// existing secrets are never replaced.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Init {
    /// Replace an existing payonce.toml (secrets are kept)
    #[arg(long)]
    force: bool,
    /// Where to write
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Print every setting with its default instead, and write nothing
    #[arg(long)]
    manual: bool,
}

const TEMPLATE: &str = include_str!("init.toml");

impl Init {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if self.manual {
            out::line(MANUAL.trim_end());
            return Ok(());
        }
        let config = self.dir.join("payonce.toml");
        if config.exists() && !self.force {
            let what = format!("{} exists already", config.display());
            return Err(Failure::new(
                what,
                "`payonce doctor` looks at it; `payonce init --force` replaces it and keeps the secrets",
            ));
        }
        let secrets = self.dir.join("secrets");
        make_folder(&secrets)?;
        let token: String = random_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let webhook = format!("whsec_{}", STANDARD.encode(*random_bytes()));
        let mut lines = Vec::new();
        for (name, text, what) in [
            ("admin-token", token, "what requests to the admin address must carry"),
            ("webhook-secret", webhook, "what deliveries to your services are signed with"),
        ] {
            let path = secrets.join(name);
            match write_private(&path, &format!("{text}\n")) {
                Ok(()) => lines.push(format!("  wrote  {:<28}  {what}", path.display())),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    lines.push(format!("  kept   {:<28}  {what}", path.display()));
                }
                Err(error) => return Err(not_written(&path, &error)),
            }
        }
        // Whoever keeps the configuration in git must not keep the keys there.
        let ignore = secrets.join(".gitignore");
        if !ignore.exists() {
            fs::write(&ignore, "*\n").map_err(|error| not_written(&ignore, &error))?;
        }
        fs::write(&config, TEMPLATE).map_err(|error| not_written(&config, &error))?;
        out::line(format_args!("  wrote  {:<28}  the configuration", config.display()));
        lines.iter().for_each(out::line);
        next_steps(&config);
        Ok(())
    }
}

fn next_steps(config: &Path) {
    let option =
        if config == Path::new("./payonce.toml") { String::new() } else { format!(" --config {}", config.display()) };
    out::line(format_args!(
        "
Next:
  1. Open {config} and fill in an account: remove the `#` before [accounts.…] and the keys below it.
  2. Put the key files that it names into the folder `secrets`.
  3. payonce{option} doctor     says what is still missing
  4. payonce{option} serve      prints the notify URLs for the platforms",
        config = config.display(),
    ));
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{} cannot be written: {}", path.display(), reason(error));
    Failure::new(what, "choose a folder that this user may write to: payonce init --dir FOLDER")
}
