"""What the server answers people in English alone: why it did not do as asked, what to do next, what a backtest or delivery met.

The page says it in Chinese by how it reads, as it does the stored `clauses`; the server itself stores and sends it in English.
Here is what somebody at the page can bring about: what only a program can send wrong stays English, for who wrote the program.
Places are as in `clauses`; one named `state` holds a word of `STATES`.
"""

from collections.abc import Mapping
from typing import Final

STATES: Final[Mapping[str, str]] = {
    "created": "已创建",
    "running": "运行中",
    "paused": "已暂停",
    "lost": "失联",
    "stopped": "已停止",
    "failed": "失败",
    "finished": "已完成",
    "queued": "已排队",
    "delivered": "已送达",
    "succeeded": "已成功",
    "cancelled": "已取消",
    "expired": "已过期",
    "superseded": "被取代",
    "rejected": "被拒绝",
    "unconfirmed": "未确认",
    "unsound": "不健全",
    "corrupt": "损坏",
    "complete": "尚未判定",
    "writing": "写入中",
    "deleted": "已删除",
}
"""Of runs, commands and checkpoints."""

OF_REFUSALS: Final[Mapping[str, str]] = {
    "the run is not running, so nothing would obey: it is {state}": "训练不在运行，没有谁会执行：现为{state}",
    "this integration cannot do that: {why}": "此接入方式做不到：{why}",
    "this integration cannot do that": "此接入方式做不到",
    "this run has no such command": "这个训练没有这个指令",
    "the command is running already": "指令已在执行",
    "the command is {state} already": "指令{state}",
    "another command is active on this run": "这个训练上另有指令在执行",
    "a {kind} is running on this run, and a stop waits behind it": "这个训练上的“{kind}”执行中，其后还有一个停止在等待",
    "a {kind} is running on this run": "这个训练上的“{kind}”执行中",
    "a {kind} is {state} on this run, and a stop waits behind it": "这个训练上的“{kind}”{state}，其后还有一个停止在等待",
    "a {kind} is {state} on this run": "这个训练上的“{kind}”{state}",
    "this run cannot do that with its data: {data} ({why})": "这个训练不能这样处理数据：{data}（{why}）",
    "this run cannot do that with its data: {data}": "这个训练不能这样处理数据：{data}",
    "this run has no checkpoint {checkpoint}": "这个训练没有检查点 {checkpoint}",
    "checkpoint {checkpoint} (step {step}) is {state}: {why}": "检查点 {checkpoint}（第 {step} 步）{state}：{why}",
    "the checkpoint lies on a stretch that a rollback has left behind": "该检查点所在的一段已被回滚取代",
    "the run is {state} in segment {segment} at step {step} by now, or in another process than you saw": (
        "训练现在{state}，第 {segment} 段第 {step} 步，或已换了进程"
    ),
    "the run is {state} in segment {segment} by now, or in another process than you saw": (
        "训练现在{state}，第 {segment} 段，或已换了进程"
    ),
    "another command was given at the same moment": "同一时刻另有人发出了指令",
    "there is no such run": "没有这个训练",
    "incident {number} is resolved already": "事件 {number} 已解决",
    "this silence has ended already": "这个静默已经结束",
    "{count} silences are running already": "已有 {count} 个静默生效",
    "the run is {state}: nothing is done to it any more": "训练{state}，不会再有处置",
    "nothing holds the automatic actions of this run": "这个训练的自动处置没有被暂缓",
    "this is a dry run: nothing is done at its end": "这是演练：结束时不做任何事",
    "no countdown is running on this run": "这个训练没有倒计时",
    "this run has no such checkpoint": "这个训练没有这个检查点",
    "the checkpoint is deleted already": "该检查点已删除",
    "{count} checkpoints of this run are pinned already": "这个训练已固定 {count} 个检查点",
    "there are {count} endpoints already": "已有 {count} 个 Webhook",
    "there are {count} rules beside the defaults already": "除默认规则外已有 {count} 条规则",
    "the rule has been changed meanwhile: it is at version {now}, not {version}": (
        "规则已被他人修改：现为版本 {now}，不是 {version}"
    ),
    "somebody else has changed this rule at the same moment": "同一时刻另有人修改了这条规则",
    "{count} backtests wait or run already": "已有 {count} 个回测在等待或进行",
    "url: the address is {what}, and LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS does not name it.": (
        "这个地址在内网，LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS 未列出它。"
    ),
    "url: the address is {what}, and is refused.": "不允许向这个地址发送。",
    "url: the address is this server's own.": "这是本服务器自己的地址。",
    "url: the URL holds a space, a backslash or a control character.": "地址里有空格、反斜杠或控制字符。",
    "url: the URL cannot be read: write it like https://example.org/hook.": (
        "地址无法识别：请写成 https://example.org/hook 的样子。"
    ),
    "url: the URL must begin with http:// or https://.": "地址须以 http:// 或 https:// 开头。",
    "url: the URL must have a host, and no user name or password.": "地址须有主机名，且不含用户名和密码。",
    "url: the host name has no address.": "查不到这个主机名的地址。",
}
OF_FIXES: Final[Mapping[str, str]] = {
    "look at the run as it is now and decide again": "请看训练的现状后再决定",
    "look at the run as it is now": "请看训练的现状",
    "look at it as it is now": "请看它的现状",
    "do it by hand where the run was started": "请在启动训练的地方手动处理",
    "wait for it, or cancel it while it is not yet running": "请等它结束，或在它执行之前取消",
    "start the run again; it takes up where it was": "请重新启动训练，它会从原处继续",
    "choose a sound checkpoint, or leave the choice to the server": "请选择健全的检查点，或交给服务器选择",
    "choose what it can do: {modes}": "请选择它能做到的：{modes}",
    "stop the run, or wait for a checkpoint": "请停止训练，或等待新的检查点",
    "open the list of runs": "请打开训练列表",
    "end those that are not needed any more": "请结束不再需要的",
    "remove one that is not needed any more": "请删除不再需要的",
    "delete one that is not needed any more": "请删除不再需要的",
    "read the list of silences": "请看静默列表",
    "read the list of rules": "请看规则列表",
    "read the rule and decide again": "请看规则的现状后再决定",
    "nothing needs to be done": "无需处理",
    "give the order yourself": "请自行发出指令",
    "pin another one": "请固定另一个",
    "unpin one first": "请先取消固定一个",
    "wait until one is done, or cancel one": "请等一个结束，或取消一个",
    "correct the named fields and send it again": "请改正后再发送",
    "correct the field and send again": "请改正后再发送",
    "Use another address, or have the one who runs the server allow it.": "请换一个地址，或请服务器管理员放行。",
    "send the same again after the time in Retry-After": "请稍后再试",
}
OF_RULES: Final[Mapping[str, str]] = {
    "is empty: give the rule one": "不能为空",
    "is empty: give the name of the project": "不能为空：请填项目名",
    "is empty: give the id of the run": "不能为空：请填训练的 id",
    "is longer than {most} characters": "长于 {most} 个字符",
    "{text} is not group/name in lower case, such as {example}": "{text} 不是小写的 group/name，如 {example}",
    "{text} is not a pattern of group/name in lower case with * for any characters: train/*": (
        "{text} 不是小写 group/name 的通配（* 代表任意字符），如 train/*"
    ),
    "must be one name: the {detector} detector reads {series} beside it": "须为单个名称：此条件还要读取 {series}",
    "must give above or below: the value past which the threshold holds": "须给出高于或低于的数值",
    "must have 1 for at least one kind of end: with 0 for all of them nothing would be told": (
        "至少一种结束须为 1：全为 0 则什么都不会报告"
    ),
    "is {value}, more than the {of} points that `of` looks at: it can never be reached": (
        "为 {value}，多于所看的 {of} 个点：永远达不到"
    ),
    "is {value}, more than a window of {window} ever holds: nothing would be judged": (
        "为 {value}，多于窗口的 {window} 个点：永远不会判断"
    ),
    "is {value}, higher than above ({above}): every value would hold": "为 {value}，高于上限 {above}：任何数值都会符合",
    "must be a finite number above 0, or null to leave clipping as it is": "须为大于 0 的有限数值，留空则不改裁剪",
    "must be a finite number": "须为有限数值",
    "must be a whole number": "须为整数",
    "must lie between 1 and {most}: 1 fires at the first point at which the condition holds": (
        "须在 1 与 {most} 之间：1 表示第一个符合条件的点即触发"
    ),
    "must lie between {least} and {most}": "须在 {least} 与 {most} 之间",
    "must be warning or critical for a rule that acts: information says nothing against a checkpoint": (
        "会处置的规则须为警告或严重：提示不影响检查点"
    ),
    "must be notify: a run that does not answer can be ordered nothing": "须为通知：没有回应的训练无法执行指令",
    "is no run that the server knows: {run}": "服务器不认识这个训练：{run}",
}
OF_RECORDS: Final[Mapping[str, str]] = {
    "nested too deep": "嵌套过深",
    "not JSON ({error})": "不是 JSON（{error}）",
    "not an object": "不是对象",
    "no step. It must be in one of {names}": "没有步。须为 {names} 之一",
    "no step column. The header must name one of {names}; it has {columns}": (
        "没有步这一列。表头须有 {names} 之一，现有 {columns}"
    ),
    "step {step} comes after step {last}. Where steps start again, give each part as a log of its own": (
        "第 {step} 步出现在第 {last} 步之后。步重新开始时，请把各段分成单独的日志"
    ),
    "more than {most} series. Leave out those that are not needed": "多于 {most} 个序列。请去掉不需要的",
    "{count} columns, more than {most}. Leave out those that are not needed": "有 {count} 列，多于 {most} 列。请去掉不需要的",
    "two columns are {name}. Leave one out": "有两列都是 {name}。请去掉一列",
    "{count} fields, where the header has {width}. Decimals must have a point, not a comma": (
        "有 {count} 项，表头有 {width} 项。小数须用点，不用逗号"
    ),
    "{count} fields, where the header has {width}": "有 {count} 项，表头有 {width} 项",
    "column {column} holds {text}, which is no number: write decimals with a point, not with a comma": (
        "{column} 列有 {text}，不是数值：小数须用点，不用逗号"
    ),
    "column {column} holds {text}, which is no number": "{column} 列有 {text}，不是数值",
    "the step is {text}. It must be a whole number from 0 to {most}": "步为 {text}。须为 0 到 {most} 的整数",
    "{name} is larger than a float64 can hold": "{name} 超出 float64 的范围",
}
"""Of a line or an entry of a log."""

OF_BACKTESTS: Final[Mapping[str, str]] = {
    "no series {series}, nor any other": "没有序列 {series}，也没有别的",
    "no series {series}; there are {others} and {count} more": "没有序列 {series}；有 {others} 等，另有 {count} 个",
    "no series {series}; there are {others}": "没有序列 {series}；有 {others}",
    "rules on absence go by the server's clock and are not judged again": "缺席类规则按服务器时钟判断，不能重放",
    "the rule {rule} judges no more from step {step} on: {text}": "规则“{rule}”自第 {step} 步起不再判断：{text}",
    "nothing was read": "什么都没有读到",
    "it is not stored any more": "已不再保存",
    "it holds {count} points; at most {most} are judged at once": "有 {count} 个点；一次最多判断 {most} 个",
    "The server ended {count} times while it worked on this: ask for fewer runs, or look into its log": (
        "服务器在处理时退出了 {count} 次：请减少训练，或查看它的日志"
    ),
    "the log is empty": "日志是空的",
    "the log holds no numbers beside its steps": "日志除步以外没有数值",
    "the log is nested too deep": "日志嵌套过深",
    "log_history is not a list": "log_history 不是列表",
    **{f"line {{number}}: {english}": f"第 {{number}} 行：{chinese}" for english, chinese in OF_RECORDS.items()},
    **{
        f"entry {{number}} of {{of}}: {english}": f"{{of}} 第 {{number}} 项：{chinese}" for english, chinese in OF_RECORDS.items()
    },
}
OF_DELIVERIES: Final[Mapping[str, str]] = {
    "no complete answer within {seconds} s": "{seconds} 秒内没有完整的应答",
    "answered {status}": "应答 {status}",
    "no connection in time": "未能及时连接",
    "connection refused or not secure": "连接被拒绝或不安全",
    "no answer in time": "未能及时应答",
    "the answer is not HTTP": "应答不是 HTTP",
    "the connection broke": "连接中断",
    "failed: {error}": "失败：{error}",
    "the host name has no address": "查不到这个主机名的地址",
    "the receiver answered 410: it is gone": "接收方应答 410：已不存在",
}
ANSWERS: Final[Mapping[str, str]] = {**OF_REFUSALS, **OF_FIXES, **OF_RULES, **OF_BACKTESTS, **OF_DELIVERIES}
"""English, Chinese. The first that fits is taken, so the more special one comes first."""
