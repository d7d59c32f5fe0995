//! Folders with a configuration and keys, and the binary run in them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The test data beside this file.
pub(crate) fn testdata(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/testdata").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// An API v3 key, a webhook secret and an admin token that must never be seen anywhere.
pub(crate) const API_V3_KEY: &str = "QfJ7zLw2XsVb9KdRt5HnYc8MpAe3GuTi";
pub(crate) const WEBHOOK_SECRET: &str = "whsec_Zk9xUTdyVmJOMm1YY0w0d1B0SDhzRGpHNXlLYUUxdWk=";
pub(crate) const ADMIN_TOKEN: &str = "c0ffee5ba5eba11decade0ddba11f00d";

/// A configuration that is whole: both channels, an effect, a sink.
pub(crate) const WHOLE: &str = r#"[server]
public = "127.0.0.1:0"
admin = "127.0.0.1:0"
public_url = "https://pay.example.com"
admin_token_file = "secrets/admin-token"

[accounts.wx]
channel = "wechat"
mchid = "1900000001"
app_ids = ["wx0000000000000001"]
api_v3_key_file = "secrets/api-v3-key"
public_key_id = "PUB_KEY_ID_0000000000000000000001"
public_key_file = "secrets/wechat-public.pem"

[accounts.ali]
channel = "alipay"
app_id = "2021000000000001"
seller_id = "2088000000000001"
alipay_public_key_file = "secrets/alipay-public"

[[effects]]
on = "order.paid"
name = "ship"
sink = "shop"

[sinks.shop]
type = "http"
url = "http://127.0.0.1:3000/payonce"
secret_file = "secrets/webhook-secret"
"#;

/// A folder with a configuration.
pub(crate) struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    /// With this configuration and all secrets that [`WHOLE`] names.
    pub(crate) fn with(config: &str) -> Self {
        let folder = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(folder.path("secrets")).unwrap();
        folder.write("payonce.toml", config);
        folder.private("secrets/api-v3-key", API_V3_KEY);
        folder.private("secrets/webhook-secret", WEBHOOK_SECRET);
        folder.private("secrets/admin-token", ADMIN_TOKEN);
        folder.write("secrets/wechat-public.pem", &testdata("wechat-public.pem"));
        folder.write("secrets/alipay-public", &testdata("alipay-public"));
        folder
    }

    pub(crate) fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn private(&self, name: &str, text: &str) {
        self.write(name, text);
        self.chmod(name, 0o600);
    }

    pub(crate) fn chmod(&self, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
        command.current_dir(self.dir.path()).args(arguments).env_remove("RUST_LOG").env_remove("PAYONCE_CONFIG");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).output().unwrap())
    }
}

/// What a process said.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Panics if a secret, or a piece of one that would help anybody, is in a text.
pub(crate) fn assert_no_secret(text: &str, secrets: &[&str], context: &str) {
    const PIECE: usize = 10;
    for secret in secrets {
        let bytes = secret.strip_prefix("whsec_").unwrap_or(secret).as_bytes();
        for window in bytes.windows(PIECE) {
            let piece = std::str::from_utf8(window).unwrap();
            assert!(!text.contains(piece), "a piece of a secret is shown:\n{text}\n--- for\n{context}");
        }
    }
}
