-- The results of each key in their order: the twin of core/sequence.py, held equal by a test.
-- KEYS: the index of due keys, and then for each decision the state and the backlog of its key.
-- ARGV: now ('' asks the server), what to do, and then two for each decision: what is asked, its
-- parts joined by '|', and what is in the result.
-- The settings are put where it says SETTINGS; LEASE and STATE_TTL come before everything.
-- Times are microseconds. Numbers stay below 2^53, where a Lua number is exact.

local floor, format, match = math.floor, string.format, string.match
local call = redis.call

local now = tonumber(ARGV[1])

-- The server is asked when the time is first needed, which for most completions is never.
local function clock()
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end

local function int(number)
  return format('%.0f', number)
end

local OFFER = '^(%d+)|([^|]*)|(%d+)|(%-?%d+)|(%-?%d*)|(%-?%d*)$'

-- What is kept of this key, or asked about it, cannot be read: that is said of this key alone.
local function unreadable(what)
  error({ unreadable = what })
end

local function parts(asked, pattern)
  local function all(first, ...)
    if not first then
      unreadable('it was asked for in words that are not known: ' .. asked)
    end
    return first, ...
  end
  return all(match(asked, pattern))
end

-- The answer where a key cannot be read; nil for all that has other reasons.
local function refusal(raised)
  local is_table = type(raised) == 'table'
  local told = is_table and raised.unreadable
  local by_server = tostring(is_table and raised.err or raised)
  if not told and string.find(by_server, 'WRONGTYPE', 1, true) then
    told = 'its values in Redis are of another type'
  end
  return told and { 'E', told } or nil
end

-- Everything that can be asked. Made only when it is needed, which is seldom: see the end.
local function machine()
  clock()
  -- SETTINGS

  -- The state of a key: nothing but its marker while it is idle.

  local STATE = '^([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$'

  local function text_of(number)
    return number and int(number) or ''
  end

  local undo -- what takes back the changes of this decision to what is held

  local function keep_missed(s, is_kept)
    local kept = {}
    for _, m in ipairs(s.missed or {}) do
      if is_kept(m) then
        kept[#kept + 1] = m
      end
    end
    s.missed = #kept > 0 and kept or nil
  end

  local function load(key, backlog, text)
    undo = {}
    local s = { key = key, backlog = backlog, n = 0 }
    if not text then
      return s
    end
    s.text = text
    s.marker = tonumber(text)
    if s.marker then
      return s
    end
    local marker, position, token, ends, gap, to, why, pause, parked, holds, missed = match(text, STATE)
    if not missed then
      unreadable(key .. ' holds what is no state of a sequence')
    end
    s.marker, s.position, s.ends = tonumber(marker), tonumber(position), tonumber(ends)
    if text_of(s.marker) ~= marker or text_of(s.position) ~= position or (s.position and not s.ends) then
      unreadable(key .. ' holds what is no state of a sequence')
    end
    if s.position then
      s.token = token
    end
    s.gap, s.pause = tonumber(gap), tonumber(pause)
    if missed ~= '' then
      s.missed = {}
      for first, last, step, over in string.gmatch(missed, '(%-?%d+),(%-?%d+),(%d+),(%d+)') do
        s.missed[#s.missed + 1] = { tonumber(first), tonumber(last), tonumber(step), tonumber(over) }
      end
    end
    s.to = tonumber(to)
    if s.to then
      s.why = why
    end
    s.parked = parked == '1'
    if holds == '1' then
      s.n, s.had = call('ZCARD', backlog), true
      if s.n == 0 then -- it expired, or somebody removed it
        s.gap, s.to, s.why, s.pause, s.parked = nil, nil, nil, nil, false
        keep_missed(s, function(m)
          return s.marker and m[2] + m[3] <= s.marker
        end)
      end
    end
    return s
  end

  local function written(s)
    if not (s.position or s.n > 0 or s.missed or s.gap or s.to or s.pause or s.parked) then
      return text_of(s.marker)
    end
    local missed = {}
    for i, m in ipairs(s.missed or {}) do
      missed[i] = int(m[1]) .. ',' .. int(m[2]) .. ',' .. int(m[3]) .. ',' .. int(m[4])
    end
    return table.concat({
      text_of(s.marker), text_of(s.position), s.token or '', text_of(s.ends), text_of(s.gap),
      text_of(s.to), s.why or '', text_of(s.pause), s.parked and '1' or '', s.n > 0 and '1' or '',
      table.concat(missed, ';'),
    }, '|')
  end

  local function save(s)
    local text = written(s)
    if text == '' or text == s.text then
      return false
    end
    if s.parked then
      call('SET', s.key, text) -- until a person decides
    else
      call('SET', s.key, text, 'PX', STATE_TTL)
    end
    return true
  end

  -- The held results: members '#position step begins since attempts payload', by position. The
  -- position is in them too: in a sorted set equal members are one, whatever their scores.

  local MEMBER = '^#%d+ (%d+) (%-?%d+) (%d+) (%d+) ()'

  local function item(s, position, member)
    local step, begins, since, attempts, from = match(member, MEMBER)
    if not from or tonumber(step) == 0 then
      unreadable(s.backlog .. ' holds what is no result, at ' .. position)
    end
    return {
      position = tonumber(position), member = member, step = tonumber(step), begins = tonumber(begins),
      since = tonumber(since), attempts = tonumber(attempts), from = from,
    }
  end

  local function lowest(s)
    if not s.first then
      local found = call('ZRANGE', s.backlog, 0, 0, 'WITHSCORES')
      s.first = item(s, found[2], found[1])
    end
    return s.first
  end

  local function find(s, position)
    if s.n == 0 then
      return nil
    end
    local found = call('ZRANGEBYSCORE', s.backlog, int(position), int(position))
    return found[1] and item(s, position, found[1]) or nil
  end

  local function remove(s, position, member)
    call('ZREM', s.backlog, member)
    undo[#undo + 1] = { 'ZADD', s.backlog, position, member }
  end

  local function drop(s, position, member)
    remove(s, position, member)
    s.n, s.first, s.touched = s.n - 1, nil, true
  end

  local function add(s, position, step, begins, since, attempts, payload)
    local at = int(position)
    local all = { '#' .. at, int(step), int(begins), int(since), int(attempts), payload }
    local member = table.concat(all, ' ')
    call('ZADD', s.backlog, at, member)
    undo[#undo + 1] = { 'ZREM', s.backlog, member }
  end

  local function hold(s, position, step, begins, attempts, payload)
    add(s, position, step, begins, now, attempts, payload)
    s.n, s.first, s.touched = s.n + 1, nil, true
  end

  local function last_position(s)
    return tonumber(call('ZRANGE', s.backlog, -1, -1, 'WITHSCORES')[2])
  end

  -- What is true of a state.

  local function live(s)
    return s.position and now < s.ends
  end

  local function applied(s, position)
    return s.marker and position <= s.marker
  end

  local function late(s, position)
    if not (s.missed and applied(s, position)) then
      return false
    end
    for _, m in ipairs(s.missed) do
      if m[1] <= position and position <= m[2] and (position - m[1]) % m[3] == 0 and now < m[4] then
        return true
      end
    end
    return false
  end

  local function missing_before(s, position, step, begins)
    if not s.marker then
      return 0
    end
    local after_marker = floor((position - s.marker) / step) - 1
    return math.max(math.min(after_marker, floor((position - begins) / step)), 0)
  end

  local function ready(s, h)
    if s.to and h.position <= s.to then
      return true
    end
    return applied(s, h.position) or missing_before(s, h.position, h.step, h.begins) == 0
  end

  local function gap_before(s, h)
    local count = missing_before(s, h.position, h.step, h.begins)
    if count == 0 or not s.to or h.position > s.to then
      return nil
    end
    return { h.position - count * h.step, h.position - h.step, h.step, s.why }
  end

  -- The held result that was handed out with a gap, and that nobody has completed.
  local function unfinished(s)
    for i = s.missed and #s.missed or 0, 1, -1 do
      local position = s.missed[i][2] + s.missed[i][3]
      if not applied(s, position) then
        local h = find(s, position)
        if h then
          return h
        end
      end
    end
    return nil
  end

  local function head(s)
    return unfinished(s) or lowest(s)
  end

  local function due(s)
    if s.n == 0 then
      return nil
    end
    if live(s) then
      return s.ends
    end
    if ready(s, head(s)) then
      return s.pause and math.max(now, s.pause) or now
    end
    if s.parked then
      return nil
    end
    local since = s.gap or now
    for _, age in ipairs(LOOKS) do
      if since + age > now then
        return since + age
      end
    end
    local at, beyond, last = since + LOOKS[#LOOKS], FIRST_LOOK_BEYOND, since + GAP_AT_MOST
    while at + beyond <= now and beyond < LAST_WAIT do
      at, beyond = at + beyond, beyond * 2
    end
    beyond = math.min(beyond, LAST_WAIT)
    local later = at + (floor((now - at) / beyond) + 1) * beyond
    return last > now and math.min(later, last) or later
  end

  -- What changes a state.

  local function moved(s, marker)
    if applied(s, marker) then
      return
    end
    s.marker, s.gap, s.parked = marker, nil, false
    if s.n > 0 then
      local old = call('ZRANGEBYSCORE', s.backlog, '-inf', int(marker), 'WITHSCORES')
      for i = 1, #old, 2 do
        if not late(s, tonumber(old[i + 1])) then
          drop(s, old[i + 1], old[i])
        end
      end
    end
    if s.missed then
      keep_missed(s, function(m)
        return now < m[4] or marker < m[2] + m[3]
      end)
    end
    if s.to and s.to <= marker then
      s.to, s.why = nil, nil
    end
  end

  local function remember(s, gap)
    local first = gap[1]
    keep_missed(s, function(m)
      if m[2] == gap[2] and m[3] == gap[3] then
        first = m[1] -- handed out before, when the marker may have been lower
        return false
      end
      return now < m[4]
    end)
    local kept = s.missed or {}
    kept[#kept + 1] = { first, gap[2], gap[3], ON_LATE == 'retract' and now + REMEMBER or now }
    while #kept > 32 do
      table.remove(kept, 1)
    end
    s.missed = kept
  end

  local function retract(s, position)
    local kept = {}
    for _, m in ipairs(s.missed or {}) do
      if m[1] <= position and position <= m[2] and (position - m[1]) % m[3] == 0 then
        if m[1] < position then
          kept[#kept + 1] = { m[1], position - m[3], m[3], m[4] }
        end
        if position < m[2] then
          kept[#kept + 1] = { position + m[3], m[2], m[3], m[4] }
        end
      else
        kept[#kept + 1] = m
      end
    end
    s.missed = #kept > 0 and kept or nil
  end

  local function fly(s, position, token)
    s.position, s.token, s.ends = position, token, now + LEASE
  end

  local function handed(s)
    local h = find(s, s.position)
    if not h then
      return nil
    end
    local work = { int(h.position), h.attempts, applied(s, h.position) and 1 or 0, string.sub(h.member, h.from) }
    local gap = gap_before(s, h)
    if gap then
      work[5], work[6], work[7], work[8] = int(gap[1]), int(gap[2]), int(gap[3]), gap[4]
    end
    return work
  end

  local function hand_out(s, token)
    if s.n == 0 or live(s) then
      return nil
    end
    local h = head(s)
    if not ready(s, h) then
      s.gap = s.gap or s.ends or now
      return nil
    end
    if s.pause and now < s.pause then
      return nil
    end
    remove(s, int(h.position), h.member)
    add(s, h.position, h.step, h.begins, h.since, h.attempts + 1, string.sub(h.member, h.from))
    s.first, s.pause = nil, nil
    fly(s, h.position, token)
    local gap = gap_before(s, h)
    if gap then
      remember(s, gap) -- now: whoever gets it may die over it
    end
    return handed(s)
  end

  local function give_up(s, to, why, token)
    if ON_GAP == 'park' then
      s.parked = true
      return nil
    end
    s.to, s.why = to, why
    return hand_out(s, token)
  end

  -- A worker started the missing result and lost its lease: the source delivers it again.
  local function started(s)
    return s.position and not live(s) and not applied(s, s.position)
  end

  local function trips(s, caught_up)
    if s.n < BREAKER or live(s) or s.parked or not s.gap or ready(s, head(s)) then
      return false
    end
    if s.n >= BREAKER_AT_MOST then
      return true
    end
    return not started(s) and (not caught_up or caught_up >= s.gap)
  end

  local function breaks_to(s, caught_up)
    if not caught_up or s.n >= BREAKER_AT_MOST then
      return last_position(s)
    end
    local found, to = call('ZRANGE', s.backlog, 0, -1, 'WITHSCORES'), nil
    for i = 1, #found, 2 do
      local h = item(s, found[i + 1], found[i])
      if to and h.since > caught_up and missing_before({ marker = to }, h.position, h.step, h.begins) > 0 then
        break
      end
      to = h.position
    end
    return to
  end

  local function proceed(s, token, caught_up)
    local work = hand_out(s, token)
    if not work and trips(s, caught_up) then
      return give_up(s, breaks_to(s, caught_up), 'breaker', token), 'breaker'
    end
    return work, nil
  end

  -- Answers: a word for what happens nearly always, else a list.

  local function wait(s)
    local at = due(s)
    return at and int(at - now) or ''
  end

  local function offer(s, asked, payload)
    local position, token, step, begins, floor_, caught_up = parts(asked, OFFER)
    position, step, begins = tonumber(position), tonumber(step), tonumber(begins)
    local before = s.n
    if floor_ ~= '' then
      moved(s, tonumber(floor_))
    elseif not s.marker then
      s.marker = position - step
    end
    local dropped = before - s.n
    if s.token == token then
      local known, held = find(s, position), find(s, s.position)
      if held and (known or applied(s, position)) then
        fly(s, s.position, token)
        return { known and 'H' or 'D', s.n, known and 1 or 0, '', dropped, wait(s), handed(s) }
      end
      if s.position == position then
        fly(s, position, token)
        return { 'P', s.n, late(s, position) and 1 or 0, '', dropped, wait(s) }
      end
    end
    local known, is_late = find(s, position), late(s, position)
    local stale = applied(s, position) and not is_late
    if not (known or stale) then
      local first = s.n == 0 or position < lowest(s).position
      local turn = is_late or missing_before(s, position, step, begins) == 0 and not unfinished(s)
      if first and turn and not live(s) then
        fly(s, position, token)
        if s.n == 0 and not is_late and dropped == 0 then
          return 'P'
        end
        return { 'P', s.n, is_late and 1 or 0, '', dropped, wait(s) }
      end
      hold(s, position, step, begins, 0, payload)
    elseif stale and s.n == 0 and dropped == 0 then
      return 'D'
    end
    local work, why = proceed(s, token, tonumber(caught_up))
    return { stale and 'D' or 'H', s.n, known and 1 or 0, why or '', dropped, wait(s), work }
  end

  local function complete(s, asked)
    local position, token = parts(asked, '^(%d+)|(.*)$')
    position = tonumber(position)
    local before = s.n
    if s.token ~= token then
      return { 0, 0, before, 0, 0, '' }
    end
    if s.position ~= position then
      fly(s, s.position, token)
      return { 1, 1, before, 0, 0, wait(s), handed(s) }
    end
    local h = find(s, position)
    local gap = h and gap_before(s, h)
    if h then
      drop(s, int(position), h.member)
    end
    s.position, s.token, s.ends = nil, nil, nil
    if applied(s, position) then
      retract(s, position)
    else
      if gap then
        remember(s, gap)
      end
      moved(s, position)
    end
    if before == 0 then
      return 'C'
    end
    local stale = before - s.n - (h and 1 or 0)
    local cleared = s.n == 0 and 1 or 0
    local work = hand_out(s, token)
    return { 1, h and 1 or 0, s.n, cleared, stale, wait(s), work }
  end

  local function out_of_time(s, caught_up)
    if live(s) or s.parked or ready(s, head(s)) then
      return nil
    end
    local oldest
    local all = call('ZRANGE', s.backlog, 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local h = item(s, all[i + 1], all[i])
      if now - h.since >= HOLD_AT_MOST then
        oldest = h.position
      end
    end
    if oldest then
      return oldest, 'too old'
    end
    local since = s.gap or now
    local reached = caught_up and math.min(caught_up, now) or now
    local over = not started(s) and reached - since >= LOOKS[#LOOKS]
    if over or now - since >= GAP_AT_MOST then
      return head(s).position, 'timeout'
    end
    return nil
  end

  local function look(s, asked)
    local token, caught_up = parts(asked, '^([^|]*)|(%-?%d*)$')
    caught_up = tonumber(caught_up)
    if s.n == 0 then
      if s.position and not live(s) then
        s.position, s.token, s.ends = nil, nil, nil
      end
      return { 0, '', 0, '' }
    end
    if s.token == token then
      fly(s, s.position, token)
      return { s.n, '', 0, wait(s), handed(s) }
    end
    local work, why = proceed(s, token, caught_up)
    local attempt = 0
    for _, age in ipairs(LOOKS) do
      if s.gap and s.gap + age <= now then
        attempt = attempt + 1
      end
    end
    if not work and not why then
      local to, because = out_of_time(s, caught_up)
      if to then
        why = because
        work = give_up(s, to, why, token)
      end
    end
    return { s.n, why or '', attempt, wait(s), work }
  end

  local function give_back(s, asked, payload)
    local position, token, step, begins, delay = parts(asked, '^(%d+)|([^|]*)|(%d+)|(%-?%d+)|(%-?%d*)$')
    position, step, begins = tonumber(position), tonumber(step), tonumber(begins)
    if s.token ~= token or s.position ~= position then
      return ''
    end
    local h = find(s, position)
    local attempts = h and h.attempts or 1
    if not h and (not applied(s, position) or late(s, position)) then
      hold(s, position, step, begins, 1, payload)
    end
    local pause = tonumber(delay) or SCHEDULE[math.min(math.max(attempts, 1), #SCHEDULE)]
    s.position, s.token, s.ends, s.pause = nil, nil, nil, now + pause
    local later = wait(s)
    return later == '' and '0' or later
  end

  local function renew(s, asked)
    local position, token = parts(asked, '^(%d+)|(.*)$')
    if s.token ~= token or s.position ~= tonumber(position) then
      return 0
    end
    fly(s, s.position, token)
    return 1
  end

  local function drain(s)
    if s.n == 0 then
      return 0
    end
    s.to, s.why, s.parked, s.pause = last_position(s), 'operator', false, nil
    return 1
  end

  local steps = {
    offer = offer, complete = complete, look = look, give_back = give_back, renew = renew,
    drain = drain,
  }
  local step, looks = steps[ARGV[2]], ARGV[2] == 'look'

  local function decided(key, backlog, text, asked, payload)
    local s = load(key, backlog, text)
    local answer = step(s, asked, payload)
    local at = due(s) -- before anything is saved: it may find what cannot be read
    local changed = save(s)
    if s.n > 0 and (changed or s.touched or looks) then
      call('ZADD', KEYS[1], at and int(at) or '+inf', match(s.key, '{(.*)}$'))
      if s.parked then
        call('PERSIST', s.backlog)
      else
        -- Long after all of it should have been given out: what nobody looks at any more.
        call('PEXPIRE', s.backlog, BACKLOG_TTL)
      end
    elseif s.n == 0 and (s.had or looks) then
      call('ZREM', KEYS[1], match(s.key, '{(.*)}$'))
    end
    return answer
  end

  return function(...)
    local is_made, answer = pcall(decided, ...)
    if is_made then
      return answer
    end
    local told = refusal(answer)
    if not told then
      return nil, answer -- the server's own: it has no memory, or is no primary any more
    end
    for i = #undo, 1, -1 do
      call(unpack(undo[i]))
    end
    return told
  end
end

-- What is kept of a key is removed, whatever it is.
local function forget(key, backlog)
  local dropped = redis.pcall('ZCARD', backlog)
  call('DEL', key, backlog)
  call('ZREM', KEYS[1], match(key, '{(.*)}$'))
  return type(dropped) == 'number' and dropped or 0
end

-- What happens nearly always: a result in its turn to a key that is idle, and its completion.

local IN_FLIGHT = '^([^|]*)|([^|]*)|([^|]*)|%d+|||||||$'
local ends

local function usual_offer(key, text, asked)
  local marker = text and tonumber(text)
  if text and not marker then
    return nil
  end
  local position, token, step, begins, applied = match(asked, OFFER)
  if not position then
    return nil
  end
  local at = tonumber(position)
  if not text then
    if applied ~= '' then
      return nil
    end
    marker = at - step
    text = int(marker)
  elseif applied ~= '' and tonumber(applied) > marker then
    return nil
  elseif at <= marker then
    return 'D'
  elseif floor((at - marker) / step) > 1 and floor((at - begins) / step) > 0 then
    return nil
  end
  ends = ends or int(clock() + LEASE)
  local state = text .. '|' .. position .. '|' .. token .. '|' .. ends .. '|||||||'
  call('SET', key, state, 'PX', STATE_TTL)
  return 'P'
end

local function usual_completion(key, text, asked)
  local marker, position, token = match(text or '', IN_FLIGHT)
  if not marker or position .. '|' .. token ~= asked then
    return nil
  end
  local before = tonumber(marker)
  if not before or tonumber(position) <= before then
    return nil
  end
  call('SET', key, position, 'PX', STATE_TTL)
  return 'C'
end

local usual = ARGV[2] == 'offer' and usual_offer or ARGV[2] == 'complete' and usual_completion
local decide, answers = nil, {}
for i = 1, (#KEYS - 1) / 2 do
  local key, asked = KEYS[2 * i], ARGV[1 + 2 * i]
  local answer
  if ARGV[2] == 'forget' then
    answer = forget(key, KEYS[2 * i + 1])
  else
    local text = redis.pcall('GET', key)
    if type(text) == 'table' then
      answer = refusal(text)
      if not answer then
        return text
      end
    end
    answer = answer or usual and usual(key, text, asked)
    if not answer then
      decide = decide or machine()
      local raised
      answer, raised = decide(key, KEYS[2 * i + 1], text, asked, ARGV[2 + 2 * i])
      if raised then
        raised = tostring(type(raised) == 'table' and raised.err or raised)
        return redis.error_reply(match(raised, '^%-?%u+ ') and raised or 'ERR ' .. raised)
      end
    end
  end
  answers[i] = answer
end
return answers
