//! The demo in two languages: labels, tables, sentences.
//!
//! Here: texts only, each in English and Chinese side by side, for terminals of 80 columns. Tables are Markdown, so
//! that they can be pasted, and ASCII, since some terminals draw lines two columns wide. Not here: printing.

use std::{env, path::Path};

use comfy_table::{Table, presets};

use super::{
    Options, Scene,
    odd::Case,
    report::{Figure, Odd, Repeats, Report, Wrong},
};

/// What the demo is told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lang {
    /// English
    En,
    /// 中文
    Zh,
}

impl Lang {
    /// What the environment asks for.
    pub(crate) fn of_environment() -> Self {
        let set = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().filter_map(|name| env::var(name).ok());
        Self::of_locale(set.into_iter().find(|value| !value.is_empty()).as_deref())
    }

    fn of_locale(locale: Option<&str>) -> Self {
        if locale.is_some_and(|locale| locale.to_ascii_lowercase().starts_with("zh")) { Self::Zh } else { Self::En }
    }

    fn say(self, en: &'static str, zh: &'static str) -> &'static str {
        match self {
            Self::En => en,
            Self::Zh => zh,
        }
    }

    /// What is going on, beside the progress bar.
    pub(crate) fn scene(self, scene: Scene) -> &'static str {
        match scene {
            Scene::Repeats => self.say("callbacks, again and again", "重复发送回调"),
            Scene::Odd => self.say("wrong and early callbacks", "错误的、过早的回调"),
            Scene::Meetings => self.say("callback meets query answer", "回调与查单应答同时到达"),
            Scene::Race => self.say("the race without payonce", "不用 payonce 时的竞态"),
            Scene::Counting => self.say("counting", "清点"),
        }
    }

    fn figure(self, figure: Figure) -> &'static str {
        match figure {
            Figure::Scenes => self.say("parts played", "完成的部分"),
            Figure::Delivered => self.say("callbacks delivered", "送达的回调"),
            Figure::Acknowledged => self.say("answers that end the repeats", "让平台停止重发的应答"),
            Figure::Answers => self.say("answers", "应答"),
            Figure::IdempotencyRows => self.say("idempotency rows", "幂等表行数"),
            Figure::RepeatsCounted => self.say("repeats counted in that row", "该行记下的重复次数"),
            Figure::FlowRows => self.say("ledger rows", "流水表行数"),
            Figure::Status => self.say("order status", "订单状态"),
            Figure::StockTaken => self.say("stock taken (an SQL effect)", "扣减库存（SQL 副作用）"),
            Figure::WebhookKeys => self.say("webhook: distinct effect keys", "webhook：不同的副作用键"),
            Figure::Answered => self.say("answer", "应答"),
            Figure::Word => self.say("noted as", "记为"),
            Figure::StatusWhenRegistered => self.say("status when registered", "登记时的状态"),
            Figure::AnsweredAgain => self.say("answer to the repeat", "对重发的应答"),
            Figure::Paid => self.say("orders PAID", "PAID 的订单"),
            Figure::ConditionalShipments => self.say("shipments by conditional UPDATE", "条件 UPDATE 的发货数"),
            Figure::BadlySigned => self.say("webhooks badly signed", "签名错误的 webhook"),
            Figure::BodiesDiffer => self.say("effect keys with two bodies", "同键不同内容的副作用"),
            Figure::Audit => self.say("differences found by the auditor", "审计员发现的差异"),
        }
    }

    fn case(self, case: Case) -> &'static str {
        match case {
            Case::ForgedWechat => self.say("WeChat: forged signature", "微信：伪造签名"),
            Case::ForgedAlipay => self.say("Alipay: forged signature", "支付宝：伪造签名"),
            Case::Probe => self.say("WeChat: signature probe", "微信：签名探测"),
            Case::Stale => self.say("WeChat: signed 10 min ago", "微信：10 分钟前签名"),
            Case::Undecryptable => self.say("WeChat: cannot be decrypted", "微信：无法解密"),
            Case::WrongSeller => self.say("Alipay: of another seller", "支付宝：别家商户的"),
            Case::WrongAmount => self.say("WeChat: 1 fen, not 99 yuan", "微信：付 1 分而非 99 元"),
            Case::UnknownOrder => self.say("Alipay: order not known yet", "支付宝：订单尚未登记"),
        }
    }

    /// What this is, before anything happens.
    pub(crate) fn intro(self, options: &Options) -> String {
        let Options { times, concurrency, seed } = options;
        match self {
            Self::En => format!(
                "WeChat Pay and Alipay repeat a payment's callback until they like the answer,\n\
                 and sometimes longer. What a payment causes must still happen once. Here both\n\
                 platforms are played against a real payonce: real HTTP, signatures, encryption,\n\
                 SQLite in a temporary folder. Then everything is counted.\n\
                 (--times {times} --concurrency {concurrency} --seed {seed})\n"
            ),
            Self::Zh => format!(
                "微信支付和支付宝会反复发送同一笔支付的回调，直到得到满意的应答，有时还会更久。\n\
                 而一笔支付引发的事情只能发生一次。本演示扮演两个平台，向真实的 payonce 发回调：\n\
                 真实的 HTTP、签名与加密，SQLite 放在临时目录里；最后逐项清点。\n\
                 （--times {times} --concurrency {concurrency} --seed {seed}）\n"
            ),
        }
    }

    /// Everything that was counted, as tables with a title each.
    pub(crate) fn results(self, report: &Report) -> String {
        [self.repeats(report), self.odd(report), self.meetings(report), self.races(report), self.proof(report)]
            .join("\n")
    }

    fn repeats(self, report: &Report) -> String {
        let Report { times, concurrency, .. } = report;
        let title = match self {
            Self::En => format!("1. One payment each; its callback {times} times, {concurrency} at once, signed anew"),
            Self::Zh => format!("1. 各一笔支付；回调各发 {times} 次，{concurrency} 个并发，每次重新签名"),
        };
        let platforms = [self.say("WeChat Pay", "微信支付"), self.say("Alipay", "支付宝")];
        let mut rows =
            Rows::new(&[self.say("counted", "清点项"), self.say("must be", "应为"), platforms[0], platforms[1]]);
        let mut row = |label: &str, due: String, of: &dyn Fn(&Repeats) -> String| {
            let cells = [label.to_owned(), due].into_iter().chain(report.repeats.iter().map(of));
            rows.add(cells.collect());
        };
        let answers = |repeats: &Repeats| {
            let each = repeats.answers.iter().map(|(kind, times)| format!("{times} x {kind}"));
            each.collect::<Vec<_>>().join(", ")
        };
        row(self.say("order", "订单"), String::new(), &|it| it.order_no.clone());
        row(self.figure(Figure::Delivered), times.to_string(), &|it| it.delivered.to_string());
        row(self.figure(Figure::Answers), self.say("all good", "全部成功").to_owned(), &answers);
        row(self.say("slowest answer", "最慢的应答"), "< 5 s".to_owned(), &|it| format!("{} ms", it.slowest_ms));
        row(self.figure(Figure::IdempotencyRows), "1".to_owned(), &|it| it.idempotency_rows.to_string());
        row(self.figure(Figure::RepeatsCounted), times.saturating_sub(1).to_string(), &|it| {
            it.repeats_counted.to_string()
        });
        row(self.figure(Figure::FlowRows), "1".to_owned(), &|it| it.flow_rows.to_string());
        row(self.figure(Figure::Status), "PAID".to_owned(), &|it| it.status.clone());
        row(self.figure(Figure::StockTaken), "1".to_owned(), &|it| it.stock_taken.to_string());
        row(self.figure(Figure::WebhookKeys), "2".to_owned(), &|it| it.webhook_keys.to_string());
        row(self.say("webhook: deliveries", "webhook：投递次数"), ">= 2".to_owned(), &|it| {
            it.webhook_deliveries.to_string()
        });
        format!("{title}\n{}\n", rows.text())
    }

    fn odd(self, report: &Report) -> String {
        let title = self.say(
            "2. Callbacks that are wrong or early, each for an order of its own",
            "2. 错误的或过早的回调，各对应一个单独的订单",
        );
        let heads = [
            self.say("what arrived", "收到的回调"),
            self.figure(Figure::Answered),
            self.figure(Figure::Word),
            self.say("booked", "入账"),
        ];
        let mut rows = Rows::new(&heads);
        let booked = |odd: &Odd| match odd.flow_rows {
            0 if odd.status == "PENDING" => self.say("nothing", "无").to_owned(),
            rows => match self {
                Self::En => format!("{rows} row, {}", odd.status),
                Self::Zh => format!("{rows} 行，{}", odd.status),
            },
        };
        for odd in &report.odd {
            rows.add(vec![self.case(odd.case).to_owned(), odd.answered.clone(), odd.word.clone(), booked(odd)]);
        }
        let again = report.odd.iter().find_map(|odd| odd.answered_again.as_deref()).unwrap_or("-");
        let notes = match self {
            Self::En => format!(
                "   1 fen: it is in the ledger, beside the order, and announced; nothing ships.\n   \
                 Early: refused, so that the platform repeats it; booked when the order was\n   \
                 registered, and its repeat was answered {again}."
            ),
            Self::Zh => format!(
                "   付 1 分：钱记入流水、不计入订单，并发出通知；不发货。\n   \
                 过早：先拒绝，让平台重发；登记订单时即入账，此后的重发得到 {again}。"
            ),
        };
        format!("{title}\n{}\n{notes}\n", rows.text())
    }

    fn meetings(self, report: &Report) -> String {
        let it = &report.meetings;
        let (orders, asked, good) = (it.orders, 2 * it.orders, it.answered_well);
        let (keys, flow, paid, stock) = (it.idempotency_rows, it.flow_rows, it.paid, it.stock_taken);
        match self {
            Self::En => format!(
                "3. Callback and query answer for one payment at the same moment, {orders} orders\n   \
                 {good} of {asked} answered well; idempotency rows {keys}, ledger rows {flow}, PAID {paid},\n   \
                 stock taken {stock}\n"
            ),
            Self::Zh => format!(
                "3. 同一笔支付的回调与查单应答同时到达，共 {orders} 个订单\n   \
                 {asked} 次中 {good} 次应答正确；幂等表 {keys} 行，流水 {flow} 行，PAID {paid} 个，\n   \
                 扣库存 {stock}\n"
            ),
        }
    }

    fn races(self, report: &Report) -> String {
        let orders = report.races.first().map_or(0, |race| race.rounds);
        let title = match self {
            Self::En => format!("4. The well-known race, here, without payonce: shipments of {orders} orders"),
            Self::Zh => format!("4. 常见的竞态，在本机重演，不经 payonce：{orders} 个订单的发货数"),
        };
        let heads = [
            self.say("callbacks at once", "同时到达的回调"),
            self.say("must be", "应为"),
            self.say("look, then update", "先查后改"),
            self.say("conditional UPDATE", "条件 UPDATE"),
        ];
        let mut rows = Rows::new(&heads);
        let shipments = |total: i64, worst: i64| match self {
            Self::En => format!("{total} (worst order {worst})"),
            Self::Zh => format!("{total}（最多一单 {worst}）"),
        };
        for race in &report.races {
            let (look, conditional) = (race.look_then_update, race.conditional);
            rows.add(vec![
                race.at_once.to_string(),
                race.rounds.to_string(),
                shipments(look.total, look.worst),
                shipments(conditional.total, conditional.worst),
            ]);
        }
        let how = self.say(
            "   Look: SELECT the status; if PENDING, UPDATE it and ship. Conditional: UPDATE\n   \
             ... WHERE status = 'PENDING', and ship only if a row changed. Each callback\n   \
             has a connection of its own; all start at one barrier, and no pause is put\n   \
             between look and update.",
            "   先查后改：SELECT 状态，若为 PENDING 则 UPDATE 并发货。条件 UPDATE：UPDATE ...\n   \
             WHERE status = 'PENDING'，改到一行才发货。每个回调一条独立的数据库连接，\n   \
             同时放行；查与改之间没有加入任何停顿。",
        );
        let unseen = if report.race_shown() {
            ""
        } else {
            self.say(
                "\n   (It did not show this time; chance decides. Run it again.)",
                "\n   （这次没有出现；竞态看运气，请再运行一次。）",
            )
        };
        format!("{title}\n{}\n{how}{unseen}\n", rows.text())
    }

    fn proof(self, report: &Report) -> String {
        let it = &report.webhooks;
        let (facts, found) = (report.facts, report.audit.len());
        match self {
            Self::En => format!(
                "5. All in all\n   \
                 Webhooks: {} owed, {} distinct keys in {} deliveries, {} badly signed.\n   \
                 Auditor (shares no code with payonce): {facts} payments happened; ledger, orders,\n   \
                 effects and webhooks compared with them: {found} differences.\n",
                it.owed, it.distinct, it.deliveries, it.badly_signed
            ),
            Self::Zh => format!(
                "5. 合计\n   \
                 webhook：应发 {}，收到不同的键 {} 个，共投递 {} 次，签名错误 {} 次。\n   \
                 审计员（与 payonce 没有共用代码）：实际发生 {facts} 笔支付；与流水、订单、副作用、\n   \
                 webhook 逐一核对：{found} 处差异。\n",
                it.owed, it.distinct, it.deliveries, it.badly_signed
            ),
        }
    }

    /// The last word.
    pub(crate) fn verdict(self, report: &Report) -> String {
        let (checked, wrong) = report.wrong();
        let seconds = report.seconds;
        if wrong.is_empty() {
            return match self {
                Self::En => format!("Everything holds: {checked} figures checked, in {seconds:.1} s."),
                Self::Zh => format!("全部成立：核对了 {checked} 个数字，用时 {seconds:.1} 秒。"),
            };
        }
        let many = wrong.len();
        let head = match self {
            Self::En => format!("DOES NOT HOLD: {many} of {checked} figures are wrong."),
            Self::Zh => format!("不成立：{checked} 个数字中有 {many} 个不对。"),
        };
        let line = |Wrong { subject, figure, expected, found }: &Wrong| {
            let figure = self.figure(*figure);
            match self {
                Self::En => format!("\n  {subject}: {figure}: {found:?}, must be {expected:?}"),
                Self::Zh => format!("\n  {subject}：{figure}：{found:?}，应为 {expected:?}"),
            }
        };
        head + &wrong.iter().map(line).collect::<String>()
    }

    /// Where the database is, and how to ask it.
    pub(crate) fn where_it_lies(self, database: &Path, kept: bool) -> String {
        let ask = format!(
            "  DB={}\n  \
             sqlite3 $DB 'SELECT idem_key, repeats FROM payonce_idempotency'\n  \
             sqlite3 $DB 'SELECT idem_key, disposition, amount FROM payonce_order_flow'\n  \
             python3 -c 'import sqlite3, sys; [print(*row) for row in sqlite3.connect(\n    \
             sys.argv[1]).execute(\"SELECT effect_key, state FROM payonce_effect\")]' $DB",
            database.display()
        );
        match (self, kept) {
            (Self::En, true) => format!("The database is kept. Ask it:\n{ask}"),
            (Self::Zh, true) => format!("数据库已保留，可以这样查询：\n{ask}"),
            (Self::En, false) => format!(
                "The database was in a temporary folder, which is removed now. With --keep or\n\
                 --serve it stays and can be asked (the folder's name will be another):\n{ask}"
            ),
            (Self::Zh, false) => format!(
                "数据库放在临时目录，现已删除；加上 --keep 或 --serve 会保留，\n\
                 届时可以这样查询（目录名会不同）：\n{ask}"
            ),
        }
    }

    /// What can be done with a gateway that stays up.
    pub(crate) fn serving(self, public: &str, admin: &str, token: &str) -> String {
        let heads = match self {
            Self::En => [
                "The gateway stays up. Notify URLs:",
                "Admin API, with this token:",
                "Try:",
                "an order with all that belongs to it",
                "an order of your own",
                "a callback nobody signed",
                "Ctrl-C ends it.",
            ],
            Self::Zh => [
                "网关继续运行。回调地址：",
                "管理 API，令牌：",
                "试试：",
                "查看一个订单的全部内容",
                "登记自己的订单",
                "没有签名的回调",
                "按 Ctrl-C 结束。",
            ],
        };
        let [urls, api, try_it, show, register, unsigned, end] = heads;
        format!(
            "{urls}\n  http://{public}/notify/wechat\n  http://{public}/notify/alipay\n\
             {api} http://{admin}\n  {token}\n{try_it}\n  # {show}\n  \
             curl -s -H 'Authorization: Bearer {token}' \\\n    http://{admin}/api/orders/DEMO-WX-1\n  \
             # {register}\n  \
             curl -s -H 'Authorization: Bearer {token}' \\\n    http://{admin}/api/orders \\\n    -d '{{\"order_no\":\"MINE-1\",\"amount\":100,\"meta\":{{\"sku\":\"sku-DEMO-WX-1\"}}}}'\n  \
             # {unsigned}\n  curl -si http://{public}/notify/wechat -d '{{}}'\n{end}"
        )
    }
}

/// A table under construction.
struct Rows(Table);

impl Rows {
    fn new(heads: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(heads.iter().copied());
        Self(table)
    }

    fn add(&mut self, cells: Vec<String>) {
        self.0.add_row(cells);
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::right;

    /// Columns on a terminal: Chinese characters and full-width marks take two.
    fn width(line: &str) -> usize {
        line.chars().map(|char| if char >= '\u{1100}' { 2 } else { 1 }).sum()
    }

    #[test]
    fn both_languages_fit_eighty_columns_and_their_tables_are_straight() {
        let report = right();
        let options = Options { times: 100, concurrency: 20, seed: u64::from(u16::MAX) };
        for lang in [Lang::En, Lang::Zh] {
            let lies = lang.where_it_lies(Path::new("/tmp/payonce-demo-123456/payonce.db"), false);
            let kept = lang.where_it_lies(Path::new("/tmp/payonce-demo-123456/payonce.db"), true);
            let serving = lang.serving("127.0.0.1:40000", "127.0.0.1:40001", &"0".repeat(32));
            let all = [lang.intro(&options), lang.results(&report), lang.verdict(&report), lies, kept, serving];
            for line in all.iter().flat_map(|text| text.lines()) {
                assert!(width(line) <= 80, "{} columns: {line}", width(line));
            }
            for table in lang.results(&report).split("\n\n") {
                let mut rows = table.lines().filter(|line| line.starts_with('|'));
                let first = rows.next().map(width);
                assert!(rows.all(|row| Some(width(row)) == first), "{table}");
            }
        }
    }

    #[test]
    fn the_other_language_is_the_other_language() {
        let report = right();
        let chinese = |text: &str| text.chars().any(|char| ('\u{4E00}'..='\u{9FFF}').contains(&char));
        let results = Lang::En.results(&report);
        assert!(!chinese(&results), "{results}");
        for scene in [Scene::Repeats, Scene::Odd, Scene::Meetings, Scene::Race, Scene::Counting] {
            assert!(chinese(Lang::Zh.scene(scene)) && !chinese(Lang::En.scene(scene)));
        }
    }

    #[test]
    fn the_language_follows_the_locale() {
        for (locale, lang) in [
            (None, Lang::En),
            (Some("C.UTF-8"), Lang::En),
            (Some("en_GB.UTF-8"), Lang::En),
            (Some("zh_CN.UTF-8"), Lang::Zh),
            (Some("zh"), Lang::Zh),
            (Some("ZH-tw"), Lang::Zh),
        ] {
            assert_eq!(Lang::of_locale(locale), lang, "{locale:?}");
        }
    }
}
