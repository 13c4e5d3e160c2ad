/**
 * The default pack in Chinese: names by the English ones, reasons by rule. A reason stands for the English one that begins with
 * the same words; one that a person has written is shown as written.
 */
export default {
  ruleNames: {
    "Loss is not finite": "损失不是有限值",
    "Optimizer steps skipped in a row": "优化器连续跳步",
    "Optimizer steps skipped too often": "优化器跳步过多",
    "Loss scale collapses": "损失缩放崩塌",
    "Loss far above its recent past": "损失远高于近期",
    "Loss has left its best and stays up": "损失偏离最好水平且居高不下",
    "Loss stands still above its best": "损失停在最好水平之上不动",
    "Loss is zero and cannot be": "损失为零，不合情理",
    "Loss has not moved since the start": "损失自开始起没有下降",
    "Gradient norm not finite again and again": "梯度范数一再不是有限值",
    "Gradient norm far above its recent past": "梯度范数远高于近期",
    "Gradient norm climbs": "梯度范数攀升",
    "Gradient norm over 10": "梯度范数超过 10",
    "Loss rises 5 times in a row": "损失连续上升 5 次",
    "Loss is not where it was after a restart": "重启后损失接不上",
    "Learning rate is not where it was after a restart": "重启后学习率接不上",
    "GPU memory grows on and on": "GPU 内存持续增长",
    "Host memory grows on and on": "主机内存持续增长",
    "Throughput under two thirds of its past": "吞吐不足过去的三分之二",
    "Steps take twice as long as before": "每步用时为过去的两倍",
    "One rank slower than the others": "一个进程慢于其他进程",
    "Run not heard of": "训练失联",
    "Run heard of, and no new step": "训练有消息但没有新的一步",
    "Training ended by itself": "训练自行结束",
  },
  ruleReasons: {
    "loss-not-finite": {
      begins: "A NaN loss is the end",
      text: "损失为 NaN 意味着训练已到尽头，除非损失缩放器跳过了那一步；这也是最晚出现的征兆。它在那一步当即触发，看的是未经过滤的原始损失。它只通知：代理自带的守护无需网络就能立刻停下已死的训练，并且知道权重是否有缩放器保护，这是规则看不到的。没有守护的训练可以给它一个动作。",
    },
    "steps-skipped": {
      begins: "A run dead in fp16",
      text: "在 fp16 中死掉的训练可能仍有有限的权重甚至有限的损失：每一步都被跳过，缩放一路滑到 0。大约 2,000 步跳一次属正常，须保持安静；连跳四步在 4 次实测的死亡中每次都出现在死前后 3 步之内，健康训练中从未出现。最初 100 步是缩放器的搜索期，允许连跳 16 步；恢复后缩放器未能还原的分段在开头同样允许。",
    },
    "steps-skipped-often": {
      begins: "A healthy scaler skips",
      text: "健康的缩放器约每 2,000 步才跳一步，因为它很久才加倍一次。50 个点中跳 3 步，或 200 个点中跳 8 步，说明梯度在原本合适的缩放下溢出：在有记录的一次死亡中，它比第一个 NaN 早 13 步，而连跳四步晚了 3 步。50 个点中少于 3 步属正常；每 100 步增长一次的缩放器每 100 步跳一步，不会触发。最初 100 步不计。",
    },
    "loss-scale-collapse": {
      begins: "Under 2^-8 of its running maximum",
      text: "低于近期最高值的 2^-8，意味着接连八次溢出没有间歇；降到 1 时已无法再把梯度托出 fp16 的下溢区：公开的训练中，缩放降到 1 之后又空跑了数小时而没有更新，应退回的位置在缩放还高的地方。最初 100 步的搜索不计（有一次公开训练从 128 搜到 8），人为固定的缩放无论多小也不计。",
    },
    "loss-spike": {
      begins: "A blow-up, or a spike that may heal",
      text: "爆炸，或可能自愈的尖峰：超过最近 32 个点中位数的 1.45 倍且高出 5.5 个稳健离差，3 个点中有 2 个如此，因为单个批次可能只是离群；或一个点达到 2.25 倍和 11 个离差。最初 8 个点以首批数值的 1.55 倍为限。健康的单批次训练常常越过倍数，却极少越过离差；在 42 个随机抽取的健康训练中，两者从未同时越过。",
    },
    "loss-diverges": {
      begins: "A rise that is too slow for a spike",
      text: "对尖峰来说太慢或不再回落的上升：5 个点的中位数达到历史最好值的 1.14 倍，并高出其自身标准差的 14.5 倍，持续 5 个点。成千上万个带噪声的点中，最好值会偶然偏低：噪声最大的健康训练达到 11 倍标准差，最慢的发散达到 18 倍。若在最初 32 个点内就退回降幅的 0.6，则立即告知。",
    },
    "loss-frozen": {
      begins: "Ten equal values",
      text: "在丢掉四分之一以上降幅的位置出现十个相同的值：模型只会预测一个常数，不会再恢复。15 次爆炸中有三次以此告终，而每一跳都太小，看倍数看不出来。收敛后停在最好水平的训练不受影响。",
    },
    "loss-zero": {
      begins: "Trainers that leave NaN out",
      text: "把 NaN 排除在均值之外的训练框架，在什么都不剩时会记录 0.0，之前先出现一次下跌：损失看上去变好了。从远高于零的位置，十个点中出现三个零；或没有梯度时连续十个零。有梯度的零损失（例如没有差异的奖励）不受影响。",
    },
    "no-learning": {
      begins: "After 128 points",
      text: "过了 128 个点，损失从未比最初低 5 %，而梯度范数跳动达数个量级。已知的两个例子来自同一个项目，所以这只是描述而非比率；之所以要求梯度范数，是因为没有它，起步慢的训练看上去一模一样。",
    },
    "grad-norm-not-finite": {
      begins: "A loss scaler skips about one step",
      text: "损失缩放器大约每 2,000 步跳一步，那一步的范数为无穷，属正常；10 个点中有 3 个则不然。从 2^32 开始减半的缩放器在开头需要 32 步，所以在出现有限的范数之前允许这么久。有一次真实训练的 171 个点里没有一个有限的范数，而损失看上去很好。",
    },
    "grad-norm-spike": {
      begins: "The earliest sign",
      text: "逐步记录时最早的征兆：超过最近 128 个点中位数的 3 倍且高出 9 个稳健离差，5 个点中有 3 个如此。单独一个点在健康训练中很常见：随机抽取的训练中有两个出现过中位数 18 倍的突增。它看到的是冲击，而不是训练能否承受：除非给它一个动作，否则只通知。",
    },
    "grad-norm-ramp": {
      begins: "Three successive rises",
      text: "5 个点的中位数连续上升三次，达到两倍，并高出其标准差的 6 倍。学习率或数据变化时，健康训练的梯度范数也会这样攀升，而日志中的每次发散都有另一条规则同样早地发现：它只显示，在你提高级别之前不通知任何人。",
    },
    "grad-norm-over-10": {
      begins: "The simple rule most people begin with",
      text: "多数人最先写下的简单规则。健康的范数取决于模型，固定上限在许多训练上都会误报：它显示在页面和图表上，在你提高级别之前不通知任何人。",
    },
    "loss-rises-5": {
      begins: "Simple to say, and noise does it too",
      text: "说起来简单，噪声也会如此。训练记录稀疏时读取记录的点，逐步记录时读取每 10 步的均值。它只显示，在你提高级别之前不通知任何人。",
    },
    "loss-breaks-after-resume": {
      begins: "Optimizer state, data order or accumulation",
      text: "重启时丢失的优化器状态、数据顺序或梯度累积，表现为最初 20 步的水平偏离超过 20 % 或 4 个稳健离差；在健康的公开训练中取 875 处当作重启，它触发了 4 次。它只是提示，因为代理自带的恢复检查更敏锐，已经会通知人。在没有账本的训练上可以提高级别。",
    },
    "rate-breaks-after-resume": {
      begins: "A schedule that begins again",
      text: "从头开始的学习率计划，或被新缩放器的跳步拖住的计划，是恢复时最常见的错误。只看 5 个点，因为计划之后可能自行下降，并且从 10 % 起才算：在健康的公开计划中取 419 处当作重启，它触发了 4 次。只是提示：许多人在重启时有意降低学习率。",
    },
    "gpu-memory-creeps": {
      begins: "A leak ends a run by out of memory",
      text: "内存泄漏常常在数小时后以内存不足结束训练。过了最初 500 个点，在约 1,500 个点内每六分之一都高于前一段，且增长超过 20 %：分配器的预热、起伏或偶尔跳升都不会这样。填上 GPU 的容量，还可得知更慢的泄漏。",
    },
    "host-memory-creeps": {
      begins: "As for the GPU",
      text: "与 GPU 相同，以增长一半为限。只是提示，因为从文件映射的数据在第一次读取时计入进程内存：许多健康训练的第一个轮次看上去像泄漏。",
    },
    "throughput-falls": {
      begins: "A GPU that throttles",
      text: "GPU 降频、数据加载跟不上、机器上的邻居：按每十点的中位数，连续 50 个点低于最近 320 个点中位数的三分之二。评估和检查点只是单独的点，不改变中位数。倍数是我们定的。",
    },
    "steps-slow-down": {
      begins: "For runs without tokens",
      text: "用于没有 token 计数的训练。取两倍，因为健康训练中较长的序列也会让步变长。其余与吞吐相同。",
    },
    "rank-straggles": {
      begins: "All ranks wait for the slowest",
      text: "所有进程都在等最慢的那个，所以每步用时看不出来：这里比较每个进程自己做的事（取数据和前向计算）。比其他进程的中位数多一半，连续三轮、每轮 20 步。倍数是我们定的；0 号进程的保存和记录只是单独的步，不改变中位数。",
    },
    "run-lost": {
      begins: "A heartbeat comes every 10 s",
      text: "每 10 秒一次心跳，连丢六次不是打嗝。进程已经消失、停住或断了联系：其间它在做什么无从得知。以服务器自己的时钟为准，启动后或服务器自身停顿后的第一分钟内从不触发。",
    },
    "run-stalled": {
      begins: "A collective that never ends",
      text: "永不结束的集合通信、永远等待的数据加载：进程活着，却什么也没训练。期限随训练而定，为最近 31 个步间隔中位数的 10 倍，且从不少于 120 秒；启动、评估、保存和回滚各有期限，按指令等待的训练从不算停滞。",
    },
    "run-ended": {
      begins: "So that an end stands beside",
      text: "让结束与之前的触发并列显示。只是提示：训练失败、被停止或完成，本身已有消息。",
    },
  },
};
